from xcompress.distill.summary import language_head, language_rows, rows

DEV = {"spearman": {"de": 60.0, "fr": 70.0}, "retrieval": {"de": 90.0, "fr": 95.0}}
RUN = {
    "languages": ["en", "de", "fr"],
    "steps": {
        "corpus": {"seconds": 3.0, "facts": {}},
        "1-contrast": {
            "seconds": 61.7,
            "facts": {"untrained": DEV, "dev": DEV, "loss": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}]},
        },
    },
}


def test_models_scored_before_training_have_a_row_without_a_time() -> None:
    assert list(rows(RUN)) == [
        ("corpus", "3 s", "", "", "", ""),
        ("student before training", "", "", "", "65.0", "92.5"),
        ("1-contrast", "62 s", "2.0000", "1.5000", "65.0", "92.5"),
    ]


def test_every_language_has_its_column() -> None:
    assert language_head(RUN) == ("step", "de", "fr")
    assert list(language_rows(RUN)) == [
        ("student before training", "60 / 90", "70 / 95"),
        ("1-contrast", "60 / 90", "70 / 95"),
    ]
