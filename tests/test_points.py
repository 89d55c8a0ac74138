"""Reading points: every format gives the same array, and what cannot be points is refused in words."""

import sys

import numpy as np
import pytest

from spadeful.points import Text, load_labels, load_points

POINTS = np.array([[0.5, -1.25, 3.0], [1e-3, 2e10, -0.0], [7.0, 8.0, 9.0]])


def written(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_npy_is_mapped_and_not_loaded(tmp_path):
    np.save(tmp_path / "x.npy", POINTS.astype(np.float32))
    points = load_points(tmp_path / "x.npy")
    assert isinstance(points, np.memmap)
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points, POINTS.astype(np.float32))


def test_npz_by_name_or_alone(tmp_path):
    np.savez(tmp_path / "one.npz", only=POINTS)
    np.savez(tmp_path / "two.npz", a=POINTS, b=2 * POINTS)
    np.testing.assert_array_equal(load_points(tmp_path / "one.npz"), POINTS)
    np.testing.assert_array_equal(load_points(f"{tmp_path}/two.npz:b"), 2 * POINTS)
    with pytest.raises(ValueError, match=r"given as .*two.npz:name. It holds: a, b\."):
        load_points(tmp_path / "two.npz")
    with pytest.raises(ValueError, match=r"must hold the array 'c'. It holds: a, b\."):
        load_points(f"{tmp_path}/two.npz:c")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("header", ["", "a{0}b{0}c\n", "\ufeff'a b'{0}b{0}c\n"], ids=["none", "names", "mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_csv_is_understood_as_found(tmp_path, delimiter, header, end):
    if delimiter == " ":
        header = header.replace("'a b'", "'a_b'")
    lines = [delimiter.join(map(repr, row)) for row in POINTS.tolist()]
    text = header.format(delimiter) + "\n".join(lines) + "\n\n"
    path = tmp_path / "x.csv"
    path.write_bytes(text.replace("\n", end).encode())
    np.testing.assert_array_equal(load_points(path), POINTS)


def test_csv_of_one_column_and_of_one_line(tmp_path):
    np.testing.assert_array_equal(load_points(written(tmp_path, "a.csv", "size\n1\n2\n")), [[1.0], [2.0]])
    np.testing.assert_array_equal(load_points(written(tmp_path, "b.csv", "1,2.5")), [[1.0, 2.5]])


def test_csv_as_told(tmp_path):
    path = written(tmp_path, "x.csv", "0,1\n3,4\n")
    with pytest.raises(ValueError, match="--header or --no-header"):
        load_points(path)
    np.testing.assert_array_equal(load_points(path, Text(header=True)), [[3.0, 4.0]])
    np.testing.assert_array_equal(load_points(path, Text(header=False)), [[0.0, 1.0], [3.0, 4.0]])
    path = written(tmp_path, "y.csv", "1:2\n3:4\n")
    np.testing.assert_array_equal(load_points(path, Text(delimiter=":")), [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,four\n", "Got 'four' in line 3, column 2"),
        ("a,b\n1,2\n\n3,\n", "Got '' in line 4, column 2"),
        ("1,2\nnan,4\n", "Got 'nan' in line 2, column 1"),
        ("1,2\n3,1e999\n", "Got '1e999' in line 2, column 2"),
        ("1,b\n3,4\n", "Got 'b' in line 1, column 2 instead. Pass --header"),
        ("1 2\n3 x\n", "Got 'x' in line 2, column 2"),
        ("1,2\n3,4,5\n", "Got 3 instead of 2 in line 2"),
        ("", "at least one line of numbers"),
        ("\n\n", "at least one line of numbers"),
        ("a,b\n", "at least one line of numbers"),
    ],
)
def test_csv_says_where_it_goes_wrong(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"x\.csv must") as refusal:
        load_points(written(tmp_path, "x.csv", text))
    assert message in str(refusal.value)


def test_csv_finds_a_bad_cell_far_down(tmp_path):
    text = "a,b\n" + "1,2\n" * 5000 + "1,oops\n" + "1,2\n" * 10
    with pytest.raises(ValueError, match="Got 'oops' in line 5002, column 2"):
        load_points(written(tmp_path, "x.csv", text))


@pytest.mark.parametrize("line", ["nan,nan", ",", "inf,-inf", "NA,NA"])
def test_a_first_point_that_is_missing_is_no_header(tmp_path, line):
    path = written(tmp_path, "x.csv", f"{line}\n1,2\n3,4\n")
    with pytest.raises(ValueError, match="may be a point that is missing"):
        load_points(path)
    np.testing.assert_array_equal(load_points(path, Text(header=True)), [[1.0, 2.0], [3.0, 4.0]])


def test_the_index_of_a_table_is_no_coordinate(tmp_path):
    """As pandas writes it, unless told not to."""
    path = written(tmp_path, "x.csv", ",a,b\n0,1.5,2.5\n1,3.5,4.5\n")
    with pytest.raises(ValueError, match="without a name, may be the index of a table"):
        load_points(path)
    np.testing.assert_array_equal(load_points(path, Text(header=True)), [[0, 1.5, 2.5], [1, 3.5, 4.5]])


def test_csv_must_be_text(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(ValueError, match="text file in UTF-8"):
        load_points(tmp_path / "x.csv")


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def save(file, /, **columns):
        parquet.write_table(arrow.table(columns), tmp_path / file)
        return tmp_path / file

    a, b, c = POINTS.T
    np.testing.assert_array_equal(load_points(save("x.parquet", a=a, b=b, c=c)), POINTS)
    assert load_points(save("f.parquet", a=a.astype(np.float32), b=b.astype(np.float32))).dtype == np.float32
    assert load_labels(save("l.parquet", l=["u", "v", "u"]), 3).tolist() == ["u", "v", "u"]
    with pytest.raises(TypeError, match=r"columns of numbers only\. Got 'name' of the type string"):
        load_points(save("s.parquet", a=a, name=["u", "v", "w"]))
    with pytest.raises(TypeError, match="real numbers"):
        load_points(save("w.parquet", name=["u", "v", "w"]))
    with pytest.raises(ValueError, match=r"no missing values\. Got 1 in 'a'"):
        load_points(save("m.parquet", a=[1.0, None], b=[1.0, 2.0]))
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match="must be a Parquet file"):
        load_points(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=r"pip install 'spadeful\[parquet\]'"):
        load_points(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.array([[1, "a"]], dtype=object), ValueError, "Python objects, which are not loaded"),
        (np.array([["a", "b"]]), TypeError, "real numbers"),
        (np.ones((2, 2), dtype=complex), TypeError, "real numbers"),
        (np.ones(4), ValueError, r"Got \(4,\) instead; for points on a line"),
        (np.ones((2, 2, 2)), ValueError, r"shape \(points, dimensions\)"),
        (np.ones((0, 2)), ValueError, "at least one point"),
        (np.ones((2, 0)), ValueError, "at least one point"),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_arrays_that_are_no_points(tmp_path, array, error, message, suffix):
    path = tmp_path / f"x.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, array)
    with pytest.raises(error, match=message) as refusal:
        load_points(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00", b"PK\x03\x04 half a file"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_files_that_numpy_did_not_write(tmp_path, content, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must"):
        load_points(path)


def test_half_a_file_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, POINTS)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="cannot be read"):
        load_points(path)


def test_wrong_places(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load_points(tmp_path / "absent.npy")
    with pytest.raises(ValueError, match=r"\.npy, \.npz, \.csv or \.parquet file. Got the ending '\.txt'"):
        load_points(written(tmp_path, "x.txt", "1 2"))
    with pytest.raises(ValueError, match="Got no ending"):
        load_points(tmp_path / "x")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError, match="folder"):
        load_points(tmp_path / "folder.npy")


def test_labels(tmp_path):
    assert load_labels(written(tmp_path, "a.csv", "cat\ndog\ncat\n"), 3).tolist() == ["cat", "dog", "cat"]
    assert load_labels(written(tmp_path, "b.csv", "animal\ncat\ndog\n"), 2).tolist() == ["cat", "dog"]
    np.save(tmp_path / "c.npy", np.array([[1], [2]]))
    assert load_labels(tmp_path / "c.npy", 2).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"one label a point, 5 of them. Got the shape \(3,\)"):
        load_labels(tmp_path / "a.csv", 5)
    with pytest.raises(ValueError, match=r"one label a line\. Got 2 cells in line 2"):
        load_labels(written(tmp_path, "d.csv", "1\n1,2\n"), 2)
    with pytest.raises(ValueError, match=r"one label a line\. Got none in line 3"):
        load_labels(written(tmp_path, "e.csv", "label\na\n\nb\n"), 3)
    np.save(tmp_path / "f.npy", [0.0, np.nan])
    with pytest.raises(ValueError, match=r"f\.npy must hold finite labels\. Got nan instead"):
        load_labels(tmp_path / "f.npy", 2)
