"""A folder of the source's images that grows with the cameras and the points seen in them."""

from collections.abc import Sequence
from pathlib import Path

from longtake.export.cloud import CloudSettings, GrowingCloud
from longtake.export.frame import MappedFrame
from longtake.export.sink import SinkState
from longtake.export.source_cameras import SourceCameras
from longtake.export.source_images import SourceImages, make_room, require_pictures
from longtake.takes.images import ImageFiles


class SceneFolder:
    """What sinks share whose files list cameras and points beside a folder of images."""

    def __init__(
        self,
        folder: Path,
        settings: CloudSettings,
        images: ImageFiles,
        *,
        own: Sequence[str],
        overwrite: bool,
        state: SinkState | None,
    ) -> None:
        """`own` are the files beside the images, by which a folder that may be overwritten is known."""
        require_pictures(images)
        if state is None:
            make_room(folder, own, overwrite=overwrite)
        self._points = settings.points
        self.cloud = GrowingCloud(settings, state=state)
        self.cameras = SourceCameras(state)
        self.images = SourceImages(folder, images, after=self.cameras.last_index)

    def add(self, frame: MappedFrame) -> None:
        """A frame that gives no points by the cloud's settings is left out altogether."""
        if self._points.takes(frame):
            self.images.write(frame.index, frame.source_image, frame.image_file)
            self.cameras.add(frame)
            self.cloud.add(frame)

    def checkpoint(self) -> SinkState:
        """Bring the images to the disk, and tell what is needed to go on after them."""
        self.images.sync()
        cloud = self.cloud.state()
        return SinkState(values=cloud.values, arrays={**cloud.arrays, **self.cameras.state().arrays})
