"""`dpatlas train` on tables and folders of images as they come."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from dpatlas.base.schema import validated
from dpatlas.base.yaml_files import read_yaml
from dpatlas.commands.train import main
from dpatlas.errors import InputError
from dpatlas.privacy.saved import load_model
from dpatlas.train.files import read_table
from dpatlas.train.inputs import class_scores
from dpatlas.train.settings import TableSettings

ROWS = """\ufeffperson,age,sex,note,ward,outcome
a,50,f,good,1,healthy
a,120,m,very bad,2,ill
b, NA,,good,3,healthy
c,0,f,,1,ill
"""
TABLE = {
    "target": "outcome",
    "classes": ["healthy", "ill"],
    "columns": {
        "age": {"range": [0, 100], "missing": 50},
        "sex": {"categories": ["f", "m", "unknown"], "missing": "unknown"},
    },
}
SETTINGS = {
    "data": "data.csv",
    "test": "test.csv",
    "table": TABLE,
    "model": "linear",
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "batch": 2,
    "steps": 2,
    "max_grad_norm": 1.0,
    "lr": 0.5,
}


def columns(**changes):
    return {**TABLE, "columns": changes}


def read(tmp_path, rows=ROWS, **table):
    path = tmp_path / "data.csv"
    path.write_text(rows)
    merged = {key: each for key, each in {**TABLE, **table}.items() if each is not None}
    return read_table("data", path, validated(TableSettings, merged))


def run(folder, *options, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "data.csv").write_text(ROWS)
    (folder / "test.csv").write_text(ROWS.replace("50,f", "51,m").replace(",0,", ",99,"))
    merged = {key: each for key, each in {**SETTINGS, **changes}.items() if each is not None}
    (folder / "mine.yaml").write_text(yaml.safe_dump(merged))
    return main([str(folder / "mine.yaml"), "--output", str(folder / "out"), *options])


def test_cells_become_numbers_by_the_settings_alone_and_what_is_filled_is_counted(tmp_path, capsys):
    x, y, persons = read(tmp_path, groups="person")
    assert x.dtype == np.float32 and y.dtype == np.int64
    # 120 is clipped to 100; a missing age is 50, and a missing sex a category of its own.
    assert x.tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [-1, 1, 0, 0]]
    assert y.tolist() == [0, 1, 0, 1]
    assert persons[0] == persons[1] and len(set(persons.tolist())) == 3
    said = capsys.readouterr().err
    assert "data: column age: 1 of 4 cells missing, filled with 50" in said
    assert "data: column sex: 1 of 4 cells missing, filled with unknown" in said
    assert "data: column age: 1 cells outside 0 to 100 count as the nearer end" in said


def test_no_row_has_an_effect_on_the_inputs_of_another_one(tmp_path):
    x, _, _ = read(tmp_path)
    moved, _, _ = read(tmp_path, ROWS.replace("a,120,m", "a,-1e9,f"))
    fewer, _, _ = read(tmp_path, ROWS.replace("c,0,f,,1,ill\n", ""))
    assert (x != moved).any(1).tolist() == [False, True, False, False]
    assert np.array_equal(x[:3], fewer)


def test_a_target_may_be_a_number_and_a_category_be_called_like_a_missing_cell(tmp_path):
    rows = ROWS.replace("a,50,f", "a,50,None")
    sex = columns(sex={"categories": ["f", "m", "None"], "missing": "f"})
    x, y, persons = read(tmp_path, rows, **{**sex, "target": "ward", "classes": None})
    assert y.dtype == np.float32 and y.tolist() == [1, 2, 3, 1] and persons is None
    assert x[0].tolist() == [0, 0, 1] and x[2].tolist() == [1, 0, 0]


def test_texts_are_counted_by_a_hash_of_each_word_and_a_parquet_file_reads_as_its_csv(tmp_path):
    words = {"note": {"words": 32, "missing": ""}, **TABLE["columns"]}
    x, y, _ = read(tmp_path, columns=words)
    good, very_bad, again, none = x[:, :32]
    assert good.max() == 1 and (good > 0).sum() == 1 and (good == again).all() and not none.any()
    assert sorted(very_bad[very_bad > 0]) == pytest.approx([0.5**0.5] * 2)
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    cells = [line.split(",") for line in ROWS.lstrip("\ufeff").splitlines()]
    table = {name: list(column) for name, *column in zip(*cells, strict=True)}
    table["age"] = [50.0, 120.0, None, 0.0]
    parquet.write_table(pyarrow.table(table), tmp_path / "data.parquet")
    settings = validated(TableSettings, {**TABLE, "columns": words})
    same = read_table("data", tmp_path / "data.parquet", settings)
    assert np.array_equal(same[0], x) and np.array_equal(same[1], y)
    (tmp_path / "data.parquet").write_text("no such thing")
    with pytest.raises(InputError, match=r"data: found .*allowed: a Parquet file"):
        read_table("data", tmp_path / "data.parquet", settings)


@pytest.mark.parametrize("cells", [[b"good"], [["good"]], [{"good": 1}], [10**15]])
def test_cells_of_a_parquet_file_that_are_no_texts_are_refused_where_they_are_used(tmp_path, cells):
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    # Seconds of a year that Python's dates do not reach.
    kind = pyarrow.timestamp("s") if cells == [10**15] else None
    table = {"odd": pyarrow.array(cells, kind), "age": [5], "outcome": ["ill"]}
    parquet.write_table(pyarrow.table(table), tmp_path / "data.parquet")
    for column, kind in (("age", {"range": [0, 10]}), ("odd", {"words": 8})):
        settings = validated(TableSettings, columns(**{column: kind}))
        if column == "age":
            assert read_table("data", tmp_path / "data.parquet", settings)[0].tolist() == [[0]]
            continue
        with pytest.raises(InputError, match="data: column odd: found cells of type"):
            read_table("data", tmp_path / "data.parquet", settings)


@pytest.mark.parametrize("cell", ["inf", "1e300"])
def test_a_target_that_float32_does_not_hold_is_refused(tmp_path, cell):
    with pytest.raises(InputError, match=rf"column ward: found '{cell}' in row 2; allowed: a fini"):
        read(tmp_path, ROWS.replace("bad,2", f"bad,{cell}"), target="ward", classes=None)


def test_texts_in_more_buckets_than_memory_holds_are_refused(tmp_path):
    rows = "note,outcome\n" + "good,ill\n" * 3000
    with pytest.raises(InputError, match=r"column note: words: found 1,048,576 for 3,000 rows"):
        read(tmp_path, rows, **columns(note={"words": 2**20}))


def test_a_table_trains_without_code_and_the_record_has_scores_for_imbalance(tmp_path, capsys):
    # By an optimizer of torch.
    chosen = {"optimizer": "NAdam", "optimizer_settings": {"betas": [0.8, 0.9]}}
    assert run(tmp_path, **chosen) == 0
    said = capsys.readouterr().out
    (path,) = (tmp_path / "out").glob("*/record.json")
    record = json.loads(path.read_text())
    metrics = record["metrics"]
    assert "DP-NAdam" in record["ledger"]["mechanism"]
    assert metrics["n"] == metrics["n_test"] == 4 and metrics["majority"] == 0.5
    assert f"balanced accuracy {metrics['balanced_accuracy']:.4g}, AUC {metrics['auc']:.4g}" in said
    model = load_model(path.parent / "model")
    assert sum(value.numel() for value in model.parameters()) == 2 * 4 + 2


def test_canaries_have_inputs_beside_those_of_a_table(tmp_path):
    assert run(tmp_path, canaries={"number": 2}, delta=1e-4) == 0


def save_pictures(folder, **numbers):
    """So many pictures of each of two classes in each part."""
    for part, number in numbers.items():
        for level, name in enumerate(("dark", "light")):
            (folder / part / name).mkdir(parents=True)
            for each in range(number):
                image = Image.new("L", (30, 40), level * 200 + 9 * len(part) + each)
                image.save(folder / part / name / f"{each}.png")


def test_a_folder_of_images_trains_and_its_test_part_is_measured(tmp_path):
    save_pictures(tmp_path / "pictures", train=6, test=2)
    images = {**IMAGES, "classes": ["dark", "light"], "resize": True}
    changes = {"data": "pictures/", "test": None, "table": None, "images": images}
    assert run(tmp_path, model="small-cnn-s", batch=4, **changes) == 0
    (path,) = (tmp_path / "out").glob("*/record.json")
    metrics = json.loads(path.read_text())["metrics"]
    assert metrics["n"] == 12 and metrics["n_test"] == 4


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_scikit_learn(classes):
    draws = np.random.default_rng(classes)
    labels = np.minimum(draws.integers(0, 3 * classes, 200), classes - 1)
    outputs = draws.standard_normal((200, classes)) + 0.5 * np.eye(classes)[labels]
    found = class_scores(outputs, labels)
    odds = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    theirs = roc_auc_score(labels, odds[:, 1] if classes == 2 else odds, multi_class="ovr")
    assert found["auc"] == pytest.approx(theirs)
    assert found["balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(labels, outputs.argmax(1))
    )
    assert found["majority"] == max(np.bincount(labels)) / 200
    assert class_scores(outputs, labels * 0)["auc"] is None
    assert class_scores(outputs * 0, labels)["auc"] == 0.5


AGE = TABLE["columns"]["age"]
IMAGES = {"classes": ["a", "b"], "image_shape": [1, 4, 4], "scaling": "unit"}
BAD = [
    ({"table": None}, "table: found nothing; allowed: this block with"),
    ({"images": IMAGES}, "images: found it without"),
    ({"optimizer": "Nadam"}, "optimizer: found Nadam; allowed: sgd, adam, adamw, or a class"),
    ({"optimizer": "NAdam", "optimizer_settings": {"beta": 0}}, "unexpected keyword argument"),
    ({"optimizer": "NAdam", "optimizer_settings": {"lr": 1}}, "lr is a setting of its own"),
    ({"optimizer_settings": {"eps": 1}}, "optimizer_settings: found eps; allowed: none with sgd"),
    ({"model": "resnet18"}, "model: found resnet18 with records of one's own"),
    ({"table": {**TABLE, "target": "result"}}, "without a column result; allowed: person, age"),
    ({"table": {**TABLE, "classes": ["healthy", "dead"]}}, "column outcome: found 'ill' in row 2"),
    ({"table": {**TABLE, "groups": "sex", "columns": {"age": AGE}}}, "sex: found 1 of 4 cells"),
    ({"table": columns(age={"range": [0, 100]})}, "column age: found 1 of 4 cells missing; all"),
    ({"table": {**TABLE, "target": "age"}}, "table.columns: found age, the target"),
    ({"table": columns(age={"range": [1, 1]})}, "columns.age.range: found 1 to 1"),
    ({"table": columns(age={"range": [0, 1], "missing": 5})}, "columns.age.missing: found 5; all"),
    ({"table": columns(age={"range": [0, 1], "missing": ["a"]})}, "columns.age.missing: found ['a"),
    ({"table": columns(age={"missing": 5})}, "range or categories or words: found none"),
    ({"table": columns(sex={"categories": ["f", "m"], "missing": "x"})}, "missing: found 'x'"),
    ({"table": columns(sex={"categories": ["f"]})}, "columns.sex.categories: found ['f']"),
    ({"table": {**TABLE, "classes": [1, "1"]}}, "table.classes: found [1, '1']"),
    (
        {"table": columns(note={"words": 8, "missing": float("nan")})},
        "columns.note.missing: found nan",
    ),
    (
        {"optimizer": "NAdam", "optimizer_settings": {"eps": float("inf")}},
        "optimizer_settings: found {'eps': inf}",
    ),
    ({"table": columns(sex=AGE)}, "column sex: found 'f' in row 1; allowed: a number"),
    ({"data": "data/", "test": None, "table": None, "images": IMAGES}, "data: found "),
    (
        {"data": "data/", "images": {**IMAGES, "image_shape": [1, 4, 5], "resize": True}},
        "images.image_shape: found [1, 4, 5]; allowed: a square",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said for _, said in BAD])
def test_what_a_file_or_its_block_does_not_allow_is_named_in_one_line(tmp_path, changes, said):
    with pytest.raises(InputError) as error:
        run(tmp_path, **changes)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("age,age\n1,2\n", "a name twice"),
        ("age,outcome\n1\n", "1 cells in row 1; allowed: 2"),
        ("age,sex,outcome\n", "no row"),
        ("age,sex,outcome\n5_0,f,ill\n", "column age: found '5_0' in row 1"),
        # Read as one cell, the open quote would swallow the rows below it.
        ('age,outcome,sex\n5,ill,"f\n6,ill,m\n', "unexpected end of data"),
    ],
)
def test_a_csv_file_that_is_no_table_is_refused(tmp_path, rows, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, rows)


def test_init_writes_settings_whose_values_are_left_to_declare(tmp_path, capsys):
    (tmp_path / "data.csv").write_text(ROWS)
    (tmp_path / "test.csv").write_text(ROWS.replace("50,f", "51,m"))
    assert main(["--init", str(tmp_path / "data.csv")]) == 0
    path = tmp_path / "data.yaml"
    assert str(path) in capsys.readouterr().out
    # No value of a cell.
    text = path.read_text()
    assert not any(word in text for word in ("healthy", "ill\n", "good", "120"))
    with pytest.raises(InputError, match=r"table.columns.age.range.0: found 'LOW'"):
        main([str(path), "--output", str(tmp_path / "out")])
    with pytest.raises(InputError, match=r"data\.yaml: found a file"):
        main(["--init", str(tmp_path / "data.csv")])
    settings = yaml.safe_load(text)
    kinds = {"age": "range", "sex": "categories", "ward": "range"}
    assert all([kind] == list(settings["table"]["columns"][name]) for name, kind in kinds.items())
    settings["table"] |= {"classes": ["healthy", "ill"], "columns": TABLE["columns"]}
    path.write_text(yaml.safe_dump(settings | {"test": "test.csv", "batch": 2, "delta": 1e-3}))
    assert main([str(path), "--output", str(tmp_path / "out")]) == 0


def test_init_writes_names_beyond_16_bits_as_yaml_reads_them(tmp_path):
    (tmp_path / "\U0001f600.csv").write_text("\U0001f600,y\n1,2\n")
    assert main(["--init", str(tmp_path / "\U0001f600.csv")]) == 0
    settings = read_yaml(tmp_path / "\U0001f600.yaml")
    assert settings["data"] == "\U0001f600.csv" and "\U0001f600" in settings["table"]["columns"]


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("data.tsv", "age\toutcome\n5\till\n", "allowed: a folder, or FILE.csv or FILE.parquet"),
        ("data.csv", "age;outcome\n5;ill\n", "the column age;outcome alone; allowed: two or more"),
        ("pictures", None, "pictures: found folders of classes: dark; allowed: two or more"),
        ("nowhere\udcff", None, "a name that is no text; allowed: UTF-8"),
    ],
)
def test_init_refuses_what_no_settings_could_train_on(tmp_path, name, rows, said):
    path = tmp_path / name
    if rows:
        path.write_text(rows)
    else:
        (path / "dark").mkdir(parents=True)
        if name != "pictures":
            (path / "light").mkdir()
    with pytest.raises(InputError, match=said):
        main(["--init", str(path)])
    assert list(tmp_path.iterdir()) == [path]


def test_init_of_a_folder_names_its_classes(tmp_path, monkeypatch):
    save_pictures(tmp_path / "pictures", train=2, test=2)
    (tmp_path / "pictures/train/.hidden").mkdir()
    monkeypatch.chdir(tmp_path / "pictures")
    assert main(["--init", "."]) == 0
    path = tmp_path / "pictures.yaml"
    text = path.read_text()
    assert 'data: "pictures/"' in text
    assert 'classes: ["dark", "light"]' in text and "test:" not in text
    path.write_text(text.replace("100", "2").replace("epochs: 10", "steps: 1"))
    assert main([str(path), "--output", str(tmp_path / "out")]) == 0
