"""Last.fm 2K of HetRec 2011: tag assignments (with a date) and listening counts (without), tab separated.

Cantador, Brusilovsky, Kuflik: 2nd Workshop on Information Heterogeneity and Fusion in Recommender Systems.
RecSys 2011. The literature on federated recommendation uses the tag file with one row per (user, artist, tag).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedrecgel.data.columns import ColumnNames, Columns, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.sources.source import Source, Statistics

NAMES = ColumnNames(user="userID", item="artistID")


def parse_tags(path: Path) -> Columns:
    """Read `user_taggedartists.dat`: one interaction per tag assignment, timed by its day."""
    types = dict.fromkeys(["userID", "artistID", "day", "month", "year"], pa.int64())
    table = read_delimited(path, "\t", types)
    day, month, year = (table.column(name).to_numpy() for name in ("day", "month", "year"))
    # 20090401: ordered like dates, and total, whatever day or year the source holds
    dated = table.append_column("time", pa.array(np.asarray(year * 10_000 + month * 100 + day)))
    return pick_columns(dated, NAMES, str(path))


def parse_listens(path: Path) -> Columns:
    """Read `user_artists.dat`: one interaction per user and artist, the number of plays as rating."""
    types = {"userID": pa.int64(), "artistID": pa.int64(), "weight": pa.float32()}
    return pick_columns(read_delimited(path, "\t", types), NAMES, str(path))


LASTFM_2K = Source(
    name="lastfm-2k",
    about="Artists tagged on Last.fm, one row per tag assignment as in the federated literature.",
    folder="lastfm-2k",
    file="user_taggedartists.dat",
    sha256="c4a9ffae9ab47a9f9b2f0678ab1f7e5c1db4ca818837d8cddd1f5699c5bbf048",
    url="https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
    member="user_taggedartists.dat",
    obtain="https://grouplens.org/datasets/hetrec-2011/",
    licence="non-commercial use",
    parse=parse_tags,
    expected=Statistics(users=1_600, items=12_454, interactions=185_650),
)

LASTFM_2K_DISTINCT = replace(
    LASTFM_2K,
    name="lastfm-2k-distinct",
    about="Artists tagged on Last.fm, one row per user and artist (the latest tag).",
    expected=Statistics(users=1_222, items=12_274, interactions=69_595),
    distinct=True,
)

LASTFM_2K_LISTENS = replace(
    LASTFM_2K,
    name="lastfm-2k-listens",
    about="Artists listened to on Last.fm, with the number of plays as rating; no timestamps.",
    file="user_artists.dat",
    sha256="254272fa721c3935e8be286d28c051b206844307128698ab4eaa41d483379416",
    member="user_artists.dat",
    parse=parse_listens,
    expected=Statistics(users=1_877, items=17_617, interactions=92_801),
)
