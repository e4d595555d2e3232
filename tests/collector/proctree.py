"""A node made of files: processes below a root, each with its control groups, environment and start."""

from __future__ import annotations

from pathlib import Path

from collector.processes import HOST_PID_NAMESPACE


class ProcTree:
    """A tree in the shape of ``/proc``."""

    def __init__(self, root: Path, namespace: str = HOST_PID_NAMESPACE) -> None:
        """Make an empty one that says which pid namespace it shows."""
        self.root = root
        (root / "1/ns").mkdir(parents=True)
        (root / "1/ns/pid").symlink_to(namespace)
        (root / "sys/kernel/random").mkdir(parents=True)
        self.boot("11111111-2222-3333-4444-555555555555")
        (root / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")

    def boot(self, boot_id: str) -> None:
        """Say which boot it is."""
        (self.root / "sys/kernel/random/boot_id").write_text(f"{boot_id}\n")

    def add(
        self,
        pid: int,
        *,
        cgroup: str = "0::/user.slice",
        environ: dict[str, str] | None = None,
        name: str = "python",
        user_id: int = 1000,
        start_ticks: int = 5000,
    ) -> None:
        """Put a process there, or another one in its place."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({name}) S 1 {' '.join(['0'] * 17)} {start_ticks} 0 0\n")
        (folder / "cgroup").write_text(cgroup + "\n")
        (folder / "environ").write_bytes(
            b"".join(f"{key}={value}\0".encode() for key, value in (environ or {}).items())
        )
        (folder / "comm").write_text(name + "\n")
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t{user_id}\t{user_id}\t{user_id}\t{user_id}\n")

    def remove(self, pid: int) -> None:
        """End a process."""
        for path in (self.root / str(pid)).iterdir():
            path.unlink()
        (self.root / str(pid)).rmdir()
