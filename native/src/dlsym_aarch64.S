/*
 * dlsym(handle, name): names that do not begin with "cu" or "nvml" go to the real dlsym by a branch, not a call,
 * so that it sees the true caller. RTLD_NEXT and RTLD_DEFAULT depend on it.
 */
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    hint #34 /* bti c */
    cbz x1, .Lforward
    ldrb w9, [x1]
    cmp w9, #'c'
    b.eq .Lmaybe_cuda
    cmp w9, #'n'
    b.eq .Lmaybe_nvml
.Lforward:
    adrp x16, vgpu_real_dlsym
    ldr x16, [x16, :lo12:vgpu_real_dlsym]
    cbz x16, .Lfind
    br x16
.Lfind:
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    stp x0, x1, [sp, #16]
    bl vgpu_find_dlsym
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, .Lnothing
    br x16
.Lnothing:
    mov x0, #0
    ret
.Lmaybe_cuda:
    ldrb w9, [x1, #1]
    cmp w9, #'u'
    b.ne .Lforward
    b .Lours
.Lmaybe_nvml:
    ldrb w9, [x1, #1]
    cmp w9, #'v'
    b.ne .Lforward
    ldrb w9, [x1, #2]
    cmp w9, #'m'
    b.ne .Lforward
    ldrb w9, [x1, #3]
    cmp w9, #'l'
    b.ne .Lforward
.Lours:
    mov x2, x30
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    stp x0, x1, [sp, #16]
    bl vgpu_dlsym
    mov x9, x0
    mov x10, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    .cfi_restore x29
    .cfi_restore x30
    cbz x10, .Lforward
    mov x0, x9
    ret
    .cfi_endproc
    .size dlsym, .-dlsym

    .section .note.GNU-stack, "", %progbits
