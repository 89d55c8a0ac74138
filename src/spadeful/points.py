"""Reading points and labels from files. Nothing in a file can run code."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spadeful.arrays import Floats
from spadeful.files import opened_npz, reading

DELIMITERS = (",", ";", "\t", "|", " ")  # a space stands for any white space
#: Lines that are looked at to find out how a text file is written.
HEAD = 50


class Text(NamedTuple):
    """How a text file of numbers is written; what is None is found out from its first lines."""

    delimiter: str | None = None
    header: bool | None = None


AS_FOUND = Text()


def load_points(source: str | Path, text: Text = AS_FOUND) -> NDArray[Any]:
    """The points (n, d) in a `.npy` (memory-mapped), `.npz`, `.csv` or `.parquet` file.

    Write `file.npz:name` for one of several arrays in a `.npz` file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("height;width\\n1;2\\n3;4\\n")
    ...     load_points(path)
    array([[1., 2.],
           [3., 4.]])
    """
    path, name, suffix = locate(source)
    values = csv_numbers(path, text) if suffix == ".csv" else READERS[suffix](path, name)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{source} must hold real numbers. Got the type {values.dtype} instead.")
    if values.ndim != 2:
        hint = "; for points on a line save the array as array[:, None]" if values.ndim == 1 else ""
        raise ValueError(f"{source} must have the shape (points, dimensions). Got {values.shape} instead{hint}.")
    if not values.size:
        raise ValueError(f"{source} must hold at least one point of one dimension. Got {values.shape} instead.")
    return values


def load_labels(source: str | Path, size: int, text: Text = AS_FOUND) -> NDArray[Any]:
    """A label for each of so many points, in any file that `load_points` reads; in a `.csv`, one a line.

    A `.csv` file with one line more than there are points has a header.
    """
    path, name, suffix = locate(source)
    if suffix == ".csv":
        cells = csv_column(path, text.delimiter or ",")
        values = np.array(cells[1:] if len(cells) == size + 1 else cells)
    else:
        values = READERS[suffix](path, name)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (size,):
        raise ValueError(f"{source} must hold one label a point, {size} of them. Got the shape {values.shape} instead.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{source} must hold finite labels. Got {values[~np.isfinite(values)][0]} instead.")
    return values


def locate(source: str | Path) -> tuple[Path, str | None, str]:
    """The file, the name of an array in it if one is given, and the file's ending."""
    found = re.fullmatch(r"(.+\.npz):([^:]+)", str(source), re.IGNORECASE | re.DOTALL)
    path, name = (Path(found[1]), found[2]) if found else (Path(source), None)
    suffix = path.suffix.lower()
    if suffix not in (*READERS, ".csv"):
        got = f"the ending {path.suffix!r}" if path.suffix else "no ending"
        raise ValueError(f"{path} must be a .npy, .npz, .csv or .parquet file. Got {got} instead.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file. Got a folder instead.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    return path, name, suffix


def npy_array(path: Path, name: str | None) -> NDArray[Any]:
    with reading(path, "a .npy file that NumPy wrote"):
        if not path.stat().st_size:
            raise ValueError("it is empty")
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except ValueError as error:
            if "empty" not in str(error):
                raise
            return np.asarray(np.load(path, allow_pickle=False))  # an array without elements cannot be mapped


def npz_array(path: Path, name: str | None) -> NDArray[Any]:
    what = "a .npz file that NumPy wrote"
    with reading(path, what), opened_npz(path) as arrays:
        there = arrays.files
    name = chosen_name(path, name, there)
    with reading(path, what), opened_npz(path) as arrays:
        return np.asarray(arrays[name])


def chosen_name(path: Path, name: str | None, there: list[str]) -> str:
    """The name of the array that is asked for, or of the only one."""
    names = ", ".join(there) or "none"
    if name is None and len(there) != 1:
        raise ValueError(f"{path} must hold one array, or be given as {path}:name. It holds: {names}.")
    if name is not None and name not in there:
        raise ValueError(f"{path} must hold the array {name!r}. It holds: {names}.")
    return name or there[0]


def parquet_array(path: Path, name: str | None) -> NDArray[Any]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as missing:
        raise ImportError("Parquet files need pyarrow: pip install 'spadeful[parquet]'") from missing
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
    except arrow.ArrowInvalid as error:
        raise ValueError(f"{path} must be a Parquet file. It cannot be read: {error}") from None
    numeric = arrow.types.is_integer, arrow.types.is_floating
    single = table.num_columns == 1  # labels may be words
    for field, column in zip(table.schema, table.columns, strict=True):
        if not single and not any(check(field.type) for check in numeric):
            raise TypeError(f"{path} must have columns of numbers only. Got {field.name!r} of the type {field.type}.")
        if column.null_count:
            raise ValueError(f"{path} must have no missing values. Got {column.null_count} in {field.name!r}.")
    columns = [column.to_numpy() for column in table.columns]
    if single and columns[0].dtype.kind == "O":
        columns = [columns[0].astype(str)]
    return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))


READERS: dict[str, Callable[[Path, str | None], NDArray[Any]]] = {
    ".npy": npy_array,
    ".npz": npz_array,
    ".parquet": parquet_array,
}


def csv_numbers(path: Path, text: Text) -> Floats:
    """The numbers in a text file, by NumPy's quick reader; a slower one says where it goes wrong."""
    delimiter = text.delimiter or sniff_delimiter(path)
    head = list(islice(csv_rows(path, delimiter), HEAD))
    header = bool(head) and (is_header(path, head[0][1]) if text.header is None else text.header)
    if not head[header:]:
        raise ValueError(f"{path} must hold at least one line of numbers. Got none.")
    skip = head[0][0] if header else 0
    split = None if delimiter == " " else delimiter
    try:
        values: Floats = np.loadtxt(
            path, delimiter=split, skiprows=skip, comments=None, ndmin=2, encoding="utf-8-sig", quotechar='"'
        )
    except ValueError as error:
        refuse_cells(path, delimiter, skip)
        raise ValueError(f"{path} must hold numbers. It cannot be read: {error}") from None
    if not np.isfinite(values).all():
        refuse_cells(path, delimiter, skip)
    return values


def csv_column(path: Path, delimiter: str) -> list[str]:
    cells: list[str] = []
    for line, row in csv_rows(path, delimiter):
        if len(row) != 1 or line != len(cells) + 1:
            found = f"{len(row)} cells in line {line}" if len(row) != 1 else f"none in line {len(cells) + 1}"
            raise ValueError(f"{path} must hold one label a line. Got {found} instead.")
        cells.append(row[0].strip())
    return cells


def csv_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty, with the line's number."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if delimiter == " ":
                rows = ((number, line.split()) for number, line in enumerate(file, 1))
            else:
                reader = csv.reader(file, delimiter=delimiter)
                rows = ((reader.line_num, cells) for cells in reader)
            yield from (row for row in rows if row[1])
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a text file in UTF-8. It cannot be read: {error}.") from None


def is_finite(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def sniff_delimiter(path: Path) -> str:
    """The delimiter that makes the first lines numbers, or else the one that divides them most alike."""

    def fit(delimiter: str) -> tuple[int, int]:
        rows = [cells for _, cells in islice(csv_rows(path, delimiter), HEAD) if len(cells) > 1]
        return sum(all(map(is_finite, cells)) for cells in rows), len(rows)

    return max(DELIMITERS, key=fit)


def is_header(path: Path, cells: list[str]) -> bool:
    """Whether the first line names the columns; refused where it could be numbers as well as names."""
    if len(cells) > 1 and [cell.strip() for cell in cells] == [str(k) for k in range(len(cells))]:
        raise ValueError(
            f"{path} begins with the line {','.join(cells)}, which may be a point or the columns' names. "
            "Pass --header or --no-header to say which."
        )
    if (
        len(cells) > 1
        and not cells[0].strip()
        and not any(map(is_missing, cells[1:]))
        and not any(map(is_finite, cells))
    ):
        raise ValueError(
            f"{path} begins with the line {','.join(cells)}: its first column, without a name, may be the index of a "
            "table. Leave it out (index=False in pandas), or pass --header if it is a coordinate."
        )
    if all(map(is_missing, cells)):
        raise ValueError(
            f"{path} begins with the line {','.join(cells)}, which may be a point that is missing or the columns' "
            "names. Mend it, or pass --header."
        )
    return not any(map(is_finite, cells))


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no number, in one of the usual ways."""
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return cell.strip().lower() in ("", "na", "n/a", "null", "none")


def refuse_cells(path: Path, delimiter: str, skip: int) -> None:
    """Refuse the first cell that is not a number, or the first line of another length."""
    width = 0
    for line, cells in csv_rows(path, delimiter):
        if line <= skip:
            continue
        for column, cell in enumerate(cells, 1):
            if not is_finite(cell):
                hint = " Pass --header if that line names the columns." if line == 1 else ""
                raise ValueError(
                    f"{path} must hold finite numbers. Got {cell!r} in line {line}, column {column} instead.{hint}"
                )
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(
                f"{path} must have as many cells in every line. Got {len(cells)} instead of {width} in line {line}."
            )
