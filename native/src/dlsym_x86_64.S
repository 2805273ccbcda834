/*
 * dlsym(handle, name): names that do not begin with "cu" or "nvml" go to the real dlsym by a jump, not a call,
 * so that it sees the true caller. RTLD_NEXT and RTLD_DEFAULT depend on it.
 */
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    testq %rsi, %rsi
    je .Lforward
    movzbl (%rsi), %eax
    cmpb $'c', %al
    je .Lmaybe_cuda
    cmpb $'n', %al
    je .Lmaybe_nvml
.Lforward:
    movq vgpu_real_dlsym(%rip), %rax
    testq %rax, %rax
    je .Lfind
    jmp *%rax
.Lfind:
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call vgpu_find_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    je .Lnothing
    jmp *%rax
.Lnothing:
    ret
.Lmaybe_cuda:
    cmpb $'u', 1(%rsi)
    jne .Lforward
    jmp .Lours
.Lmaybe_nvml:
    cmpb $'v', 1(%rsi)
    jne .Lforward
    cmpb $'m', 2(%rsi)
    jne .Lforward
    cmpb $'l', 3(%rsi)
    jne .Lforward
.Lours:
    movq (%rsp), %rdx
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call vgpu_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    je .Lforward
    ret
    .cfi_endproc
    .size dlsym, .-dlsym

    .section .note.GNU-stack, "", @progbits
    /* Says that indirect branch tracking and shadow stacks may stay on. */
    .section .note.gnu.property, "a"
    .balign 8
    .long 4, 16, 5
    .asciz "GNU"
    .long 0xc0000002, 4, 3, 0
