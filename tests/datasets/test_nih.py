"""NIH ChestX-ray14 as its authors hand it out: table, folders of images, lists."""

import pytest
from PIL import Image

from nbkit.datasets.find import find
from nbkit.datasets.nih import NIH_LABELS
from nbkit.errors import ConfigError
from tests.datasets.images import names_of

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
    "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)
ROWS = {
    "00000001_000.png": "Cardiomegaly|Emphysema",
    "00000001_001.png": "No Finding",
    "00000002_000.png": "Hernia",
    "00000003_000.png": "No Finding",
}


def row(image, findings, patient=None):
    number = int(image[:8]) if patient is None else patient
    return f"{image},{findings},0,{number},58,M,PA,2682,2749,0.143,0.143,"


@pytest.fixture
def nih(tmp_path):
    """Four images in the folders of the official archives."""
    for number, name in enumerate(ROWS):
        folder = tmp_path / f"images_{number + 1:03}" / "images"
        folder.mkdir(parents=True)
        Image.new("L", (8, 8), 40 * number).save(folder / name)
    lines = [HEADER, *(row(*one) for one in ROWS.items())]
    (tmp_path / "Data_Entry_2017.csv").write_text("\n".join(lines))
    return tmp_path


def lists(root, training, test):
    (root / "train_val_list.txt").write_text("\n".join(training))
    (root / "test_list.txt").write_text("\n".join(test))


def test_findings_become_labels_and_the_lists_make_the_split(nih):
    names = [*ROWS]
    lists(nih, names[:2], names[2:])

    listing = find(str(nih))

    assert listing.kind == "NIH ChestX-ray14"
    assert tuple(listing.contents.classes) == NIH_LABELS
    first, second = listing.contents.train
    assert first.name == "images_001/images/00000001_000.png"
    found = [name for name, has in zip(NIH_LABELS, first.label, strict=True) if has]
    assert found == ["Cardiomegaly", "Emphysema"]
    assert not any(second.label)
    others = names_of(listing.contents.evaluation)
    assert [name.rpartition("/")[2] for name in others] == names[2:]
    assert listing.contents.patients[first.name] == "1"


def test_without_lists_no_patient_is_on_both_sides_and_the_table_is_the_data_too(nih):
    listing = find(str(nih / "Data_Entry_2017.csv"))

    train, evaluation = (
        {listing.contents.patients[sample.name] for sample in samples}
        for samples in (listing.contents.train, listing.contents.evaluation)
    )
    assert min(len(train), len(evaluation)) > 0
    assert not train & evaluation
    assert train | evaluation == {"1", "2", "3"}


def test_lists_are_part_of_the_fingerprint(nih):
    names = [*ROWS]
    lists(nih, names[:2], names[2:])
    before = find(str(nih)).fingerprint()
    lists(nih, names[2:], names[:2])

    assert find(str(nih)).fingerprint().sha256 != before.sha256


def test_a_patient_on_both_sides_is_refused(nih):
    names = [*ROWS]
    lists(nih, names[:1], names[1:])

    with pytest.raises(ConfigError, match=r"1 patient in both .* evaluation .leakage"):
        find(str(nih))


def test_an_image_in_no_list_is_refused(nih):
    lists(nih, [*ROWS][:2], [])

    with pytest.raises(ConfigError, match=r"'00000002_000.png', which is in neither"):
        find(str(nih))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (row("00000009_000.png", "Mass"), r"1 is missing \(00000009"),
        (row("00000003_000.png", "Cold", 3), "'00000003_000.png' more than once"),
        (row("00000004_000.png", "Cold"), "finding 'Cold' in line 6, not one of the"),
        ("00000005_000.png,Mass", "2 values in line 6, not"),
        (row("00000004_000.png", " "), "an empty finding in line 6, not 'No Finding'"),
        (row("00000004_000.png", "No Finding|Mass"), "contradictory .* in line 6"),
        (row("00000004_000.png", "Mass", ""), "has no 'Patient ID' in line 6"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(nih, line, said):
    for number in (4, 5):
        Image.new("L", (8, 8)).save(nih / "images_001" / f"0000000{number}_000.png")
    with (nih / "Data_Entry_2017.csv").open("a") as file:
        file.write(f"\n{line}")

    with pytest.raises(ConfigError, match=rf"2017.csv' .*{said}.*(remove|Correct)"):
        find(str(nih))


def test_an_image_that_is_there_twice_is_refused_with_both_places(nih):
    copied = nih / "images_002" / "images" / "00000001_000.png"
    Image.new("L", (8, 8)).save(copied)

    with pytest.raises(ConfigError, match=r"exists at images_001/.* and at images_00"):
        find(str(nih))


def test_other_folders_of_images_are_not_looked_at(nih):
    other = nih / "images_small"
    other.mkdir()
    Image.new("L", (8, 8)).save(other / "00000001_000.png")

    assert "images_001/images/00000001_000.png" in find(str(nih)).contents.patients


def test_one_list_alone_says_nothing(nih):
    (nih / "test_list.txt").write_text("00000001_000.png")

    with pytest.raises(ConfigError, match=r"Add train_val_list\.txt, or remove"):
        find(str(nih))


def test_a_list_that_is_no_text_is_refused(nih):
    lists(nih, [*ROWS][:2], [*ROWS][2:])
    (nih / "test_list.txt").write_bytes(b"\xff\xfe")

    with pytest.raises(
        ConfigError, match=r"test_list.txt .*, which is not text in UTF-8"
    ):
        find(str(nih))


def test_it_is_said_what_made_the_split(nih):
    assert find(str(nih)).contents.split_by.startswith("about 20% of the patients")
    lists(nih, [*ROWS][:2], [*ROWS][2:])
    expected = "NIH's lists train_val_list.txt and test_list.txt"
    assert find(str(nih)).contents.split_by == expected


def test_of_two_tables_one_has_to_be_named(nih):
    (nih / "Data_Entry_2017_v2020.csv").write_text(HEADER)

    with pytest.raises(ConfigError, match="contains 2 label tables"):
        find(str(nih))
