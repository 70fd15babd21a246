"""What a node put on the machine is found while its pods come and go."""

import shutil
import threading

from tests.rig.footprint import Footprint


def test_cgroups_that_go_away_during_the_search_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(Footprint, "cgroups", lambda _: [tmp_path])
    footprint = Footprint((0, 0), tmp_path / "base", tmp_path / "runtime", "none0", "/none", [])
    ended = threading.Event()

    def pods_come_and_go():
        while not ended.is_set():
            (tmp_path / "pod" / "container").mkdir(parents=True)
            (tmp_path / "pod" / "container" / "cgroup.procs").write_text("1\n")
            shutil.rmtree(tmp_path / "pod")

    pods = threading.Thread(target=pods_come_and_go)
    pods.start()
    try:
        found = [footprint.processes() for _ in range(200)]
    finally:
        ended.set()
        pods.join()
    assert {pid for pids in found for pid in pids} <= {1}
