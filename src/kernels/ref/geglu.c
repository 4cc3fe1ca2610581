// GEGLU (op/geglu.c): a = gelu(gate) * up, where gate and up are the halves of h, and its gradient;
// computed like SwiGLU.
#include "kernels/ref/ref.h"

status ref_geglu(const kern_context *context, const kern_call *c)
{
    (void)context;
    return ref_gate(c, c->attrs.activation);
}

status ref_geglu_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    return ref_gate_bwd(c, c->attrs.activation);
}
