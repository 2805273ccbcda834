/*
 * What old C libraries keep in libdl and libpthread, found by name when it is needed. A preloaded library
 * that names those two brings them into every program, and lets none start in an image without them.
 */
#ifndef VGPU_LIBC_H
#define VGPU_LIBC_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum vgpu_outside {
#define OUTSIDE(name, library) OUTSIDE_##name,
#include "libc.def"
#undef OUTSIDE
    VGPU_OUTSIDE
};

enum vgpu_library { VGPU_DL, VGPU_THREADS };

/* NULL until vgpu_libc_find found it. */
extern void* _Atomic vgpu_outside[VGPU_OUTSIDE];

/* LIBC(dlopen)(arguments) calls the C library's dlopen. */
#define LIBC(name)                                                                                           \
    ((__typeof__(name)*)atomic_load_explicit(&vgpu_outside[OUTSIDE_##name], memory_order_acquire))

/*
 * Finds all functions of one library, which stays loaded then; false, with one line on stderr, when one is
 * missing. It asks the loader, so no lock of ours may be held.
 */
bool vgpu_libc_find(enum vgpu_library library);

/* Whether all of them were found. */
bool vgpu_libc_has(enum vgpu_library library);

/* The C library's dlsym, or NULL with one line on stderr. Called by dlsym in assembly. */
void* vgpu_find_dlsym(void);

/* What it finds; NULL when there is none. */
void* vgpu_real_symbol(void* handle, const char* name);

#endif
