"""Where a workload's volumes lie on this machine, and keeping their files as the objects say.

Here: one workload's volumes as folders. Not here: their contents (lab/volumes.py), the swap (lab/volumewriter.py).
Invariant: a volume's place never changes during the workload's life; its files may, at any time.
"""

import shutil
from pathlib import Path

from podgate.lab.containers import VolumePlaces
from podgate.lab.places import Places
from podgate.lab.podenv import Surroundings
from podgate.lab.pods import Workload
from podgate.lab.podspec import Volume
from podgate.lab.security import ConfigFault
from podgate.lab.volumes import contents, of_machine
from podgate.lab.volumewriter import VolumeWriter, make_empty_dir, make_host_path


class Volumes:
    """One workload's volumes.

    Attributes:
        places: where those lie that are prepared.
    """

    def __init__(self, workload: Workload, places: Places) -> None:
        self.places = VolumePlaces()
        self._workload, self._lab = workload, places
        self._folder = places.volatile / "pods" / "_".join(filter(None, workload.identity))
        self._writers: dict[str, VolumeWriter] = {}

    def prepare(self, around: Surroundings) -> ConfigFault | None:
        """Make what is not made yet; a ConfigFault when an object or a path of the node is missing. May be repeated."""
        for volume in self._workload.pod.spec.volumes or ():
            if volume.name not in self.places.paths:
                refused = self._place(volume, around)
                if refused is not None:
                    return ConfigFault(refused.reason, f"volume {volume.name}: {refused.message}")
        return None

    def _place(self, volume: Volume, around: Surroundings) -> ConfigFault | None:
        group = self._workload.pod.spec.security.fs_group
        folder, read_only = self._folder / volume.name, False
        files = contents(volume, around)
        if isinstance(files, ConfigFault):
            return files
        if files is not None:
            writer = VolumeWriter(folder, group)
            writer.write(files)
            self._writers[volume.name] = writer
            read_only = True
        elif volume.host_path is not None:
            if of_machine(volume.host_path) and Path(volume.host_path.path).exists():
                read_only = True
                folder = Path(volume.host_path.path)
            else:
                made = make_host_path(volume.host_path, self._lab.node(self._workload.node))
                if isinstance(made, ConfigFault):
                    return made
                folder = made
        else:
            make_empty_dir(folder, group)
        sealed = self.places.read_only | ({volume.name} if read_only else set())
        self.places = VolumePlaces({**self.places.paths, volume.name: str(folder)}, sealed)
        return None

    def write(self, around: Surroundings) -> None:
        """Rewrite volumes whose objects changed. A volume whose object is gone or broken keeps its files."""
        for volume in self._workload.pod.spec.volumes or ():
            writer = self._writers.get(volume.name)
            files = contents(volume, around) if writer else None
            if writer and files is not None and not isinstance(files, ConfigFault):
                writer.write(files)

    def remove(self) -> None:
        """Remove the volumes that live as long as the workload."""
        shutil.rmtree(self._folder, ignore_errors=True)
