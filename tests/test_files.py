import os

import numpy as np
import pytest

import spadeful as sp
from spadeful.files import check_free, replacing
from spadeful.points import load_points


def test_a_result_appears_whole(tmp_path):
    with replacing(tmp_path / "new" / "a.txt") as temporary:
        temporary.write_text("whole")
        assert not (tmp_path / "new" / "a.txt").exists()
    assert (tmp_path / "new" / "a.txt").read_text() == "whole"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_results_may_be_read_by_whom_other_files_may(tmp_path):
    (tmp_path / "plain.txt").write_text("")
    with replacing(tmp_path / f"{240 * 'a'}.txt") as temporary:  # names may be as long as the file system lets them
        temporary.write_text("")
    with replacing(tmp_path / "private.txt") as temporary:
        temporary.unlink()
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))  # as some libraries write theirs
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_failure_leaves_the_earlier_result(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("earlier")

    def fail():
        with replacing(path, force=True) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_an_earlier_result_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("earlier")
    with pytest.raises(FileExistsError, match="--force"), replacing(path):
        pass
    with replacing(path, force=True) as temporary:
        temporary.write_text("later")
    assert path.read_text() == "later"


def test_a_folder_is_no_result(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        check_free(tmp_path, force=True)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(NotADirectoryError, match="must be a folder"), replacing(tmp_path / "taken" / "a.txt"):
        pass


def test_places_that_cannot_be_written_to_are_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="must be a folder"):
        check_free(tmp_path / "file" / "deeper" / "a.txt")
    (tmp_path / "locked").mkdir(mode=0o500)
    if os.access(tmp_path / "locked", os.W_OK):
        pytest.skip("whoever runs this may write everywhere")
    with pytest.raises(PermissionError, match="can be written to"):
        check_free(tmp_path / "locked" / "a.txt")


@pytest.mark.parametrize("kind", ["points.npy", "points.npz", "transfer.npz"])
def test_damage_anywhere_is_told_in_a_line(tmp_path, kind):
    rng, path = np.random.default_rng(0), tmp_path / kind
    if kind == "points.npy":
        np.save(path, rng.random((5, 2)))
    elif kind == "points.npz":
        np.savez_compressed(path, x=rng.random((50, 2)))
    else:
        source, target = rng.integers(0, 256, (2, 5, 5, 3), dtype=np.uint8)
        sp.transfer_colors(source, target, sp.Partial(0.9), batch_size=5, n_batches=5).transfer.save(path)
    whole, refused = path.read_bytes(), 0
    for at in range(0, len(whole), max(1, len(whole) // 400)):
        for byte in (0, 255, whole[at] ^ 1):
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            try:
                sp.ColorTransfer.load(path) if kind == "transfer.npz" else load_points(path)
            except (ValueError, TypeError) as error:
                assert str(path) in str(error)  # noqa: PT017
                refused += 1
    assert refused > 100
