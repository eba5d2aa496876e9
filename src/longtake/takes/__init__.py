"""Takes on disk: images, poses, depth, intrinsics and what was visible, in our own schema and in TUM and KITTI."""
