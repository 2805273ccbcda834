/* What no preloaded library can cost less than: one that does nothing. */
int vgpu_empty;
