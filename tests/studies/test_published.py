from __future__ import annotations

from fedrecgel.methods import METHODS
from fedrecgel.studies.published import VARIANTS, caveats_for, published


def test_cells_are_quoted_as_printed() -> None:
    cell = published("main", "filmtrust", ("fedrecgel",), "HR@10")
    assert cell is not None
    assert (cell.value, cell.sd) == ("91.66", "0.10")
    steep = published("landscape_average_loss", "filmtrust", ("fedncf",), "magnitude 10")
    assert steep is not None
    assert (steep.value, steep.sd) == ("~ 2e19", None)


def test_every_federated_method_has_its_row_in_the_main_table() -> None:
    federated = {name for name, kind in METHODS.items() if kind.kind == "federated"}
    for name in federated - {"fedncf-weights", "spectra"}:  # one row for both FedNCF; ours is not in the paper
        assert published("main", "qb-article", (name,), "NDCG@5") is not None, name


def test_both_spellings_of_a_variant_are_found() -> None:
    for dataset in ("filmtrust", "lastfm-2k", "amazon-video", "qb-article"):
        for names in VARIANTS.values():
            assert published("ablation", dataset, names, "HR@10") is not None


def test_what_the_paper_does_not_have() -> None:
    assert published("main", "lastfm-2k-distinct", ("fedrecgel",), "HR@10") is None
    assert published("main", "filmtrust", ("popularity",), "HR@10") is None
    assert caveats_for("demo") == []
    assert any("14 of the 32" in text for text in caveats_for("amazon-video"))
