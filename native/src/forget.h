/* What each part forgets in a forked child. */
#ifndef VGPU_FORGET_H
#define VGPU_FORGET_H

/* To be called before claims are opened: their slot is this process's alone. */
void vgpu_watch_forks(void);

void vgpu_memory_forget(void);
void vgpu_virtual_forget(void);
void vgpu_arrays_forget(void);
void vgpu_pools_forget(void);
void vgpu_graphs_forget(void);
void vgpu_limiter_forget(void);
void vgpu_marks_forget(void);

#endif
