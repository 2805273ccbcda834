/* Places where tests kill the process: VGPU_CRASH_AT names one. Nothing of it is in the library that ships.
 */
#ifndef VGPU_CRASH_H
#define VGPU_CRASH_H

#ifdef VGPU_TESTING
void vgpu_crash_at(const char* label);
#define CRASH_POINT(label) vgpu_crash_at(label)
#else
#define CRASH_POINT(label) ((void)0)
#endif

#endif
