"""Published data sets: one file per raw format, one line here per data set."""

from __future__ import annotations

from fedrecgel.data.sources.amazon_video import AMAZON_VIDEO
from fedrecgel.data.sources.filmtrust import FILMTRUST
from fedrecgel.data.sources.lastfm import LASTFM_2K, LASTFM_2K_DISTINCT, LASTFM_2K_LISTENS
from fedrecgel.data.sources.movielens import MOVIELENS_1M, MOVIELENS_100K
from fedrecgel.data.sources.qb_article import QB_ARTICLE
from fedrecgel.data.sources.source import Source, Statistics

__all__ = ["SOURCES", "Source", "Statistics"]

SOURCES: dict[str, Source] = {
    "filmtrust": FILMTRUST,
    "lastfm-2k": LASTFM_2K,
    "lastfm-2k-distinct": LASTFM_2K_DISTINCT,
    "lastfm-2k-listens": LASTFM_2K_LISTENS,
    "amazon-video": AMAZON_VIDEO,
    "qb-article": QB_ARTICLE,
    "movielens-100k": MOVIELENS_100K,
    "movielens-1m": MOVIELENS_1M,
}
