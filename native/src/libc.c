#include "libc.h"
#include "log.h"

#include <stddef.h>

/*
 * Weak, so that nothing is needed at start: from 2.34 on libc has dlvsym; before, libdl, which is there when
 * the program was linked with it. The other two are libc's own up to 2.33 and reach libdl in all programs.
 */
#pragma weak dlvsym
extern void* vgpu_old_dlopen(const char* name, int mode) __asm__("__libc_dlopen_mode") __attribute__((weak));
extern void* vgpu_old_dlsym(void* handle, const char* name) __asm__("__libc_dlsym") __attribute__((weak));
#define OLD_MODE ((int)(RTLD_NOW | 0x80000000u)) /* as libc itself calls it */

void* _Atomic vgpu_outside[VGPU_OUTSIDE];

/* Written once with the one value it can have, so it needs no lock; dlsym in assembly reads it. */
void* _Atomic vgpu_real_dlsym;

static const struct {
    char name[32];
    enum vgpu_library library;
} outside[VGPU_OUTSIDE] = {
#define OUTSIDE(name, library) { #name, library },
#include "libc.def"
#undef OUTSIDE
};

/* In a C library before 2.34. The handle is never closed: what was found in it must stay. */
static void* in_old(enum vgpu_library library, const char* name)
{
    const char* file = library == VGPU_DL ? "libdl.so.2" : "libpthread.so.0";
    void* handle = vgpu_old_dlopen && vgpu_old_dlsym ? vgpu_old_dlopen(file, OLD_MODE) : NULL;
    return handle ? vgpu_old_dlsym(handle, name) : NULL;
}

static void miss(const char* name, const char* effect)
{
    static _Atomic bool is_said;
    if (!atomic_exchange_explicit(&is_said, true, memory_order_relaxed))
        LOG(VGPU_ERROR, "found no %s in the C library, expected glibc 2.17 or newer: %s", name, effect);
}

/* A sanitizer asks for functions before it is ready to watch us. */
__attribute__((no_sanitize("address", "thread", "undefined"))) void* vgpu_find_dlsym(void)
{
    static const char* const versions[] = {
#if defined(__x86_64__)
        "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"
#else
        "GLIBC_2.34", "GLIBC_2.17"
#endif
    };
    void* found = NULL;
    for (size_t i = 0; dlvsym && !found && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!found)
        found = in_old(VGPU_DL, "dlsym");
    if (found)
        atomic_store_explicit(&vgpu_real_dlsym, found, memory_order_release);
    else
        miss("dlsym", "no function is found by name");
    return found;
}

void* vgpu_real_symbol(void* handle, const char* name)
{
    void* function = atomic_load_explicit(&vgpu_real_dlsym, memory_order_acquire);
    if (!function)
        function = vgpu_find_dlsym();
    return function ? ((__typeof__(dlsym)*)function)(handle, name) : NULL;
}

static bool find(int number)
{
    void* found = vgpu_real_symbol(RTLD_DEFAULT, outside[number].name);
    if (!found)
        found = in_old(outside[number].library, outside[number].name);
    if (found)
        atomic_store_explicit(&vgpu_outside[number], found, memory_order_release);
    else
        miss(outside[number].name, "GPU memory is refused");
    return found != NULL;
}

bool vgpu_libc_has(enum vgpu_library library)
{
    for (int i = 0; i < VGPU_OUTSIDE; i++)
        if (outside[i].library == library && !atomic_load_explicit(&vgpu_outside[i], memory_order_acquire))
            return false;
    return true;
}

bool vgpu_libc_find(enum vgpu_library library)
{
    for (int i = 0; i < VGPU_OUTSIDE; i++) {
        bool is_known = atomic_load_explicit(&vgpu_outside[i], memory_order_acquire) != NULL;
        if (outside[i].library == library && !is_known && !find(i))
            return false;
    }
    return true;
}
