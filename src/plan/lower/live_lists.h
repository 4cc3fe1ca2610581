// Tensors that the lists of programs access, node by node. They are computed once for each list,
// because layers share programs.
#ifndef PLAN_LOWER_LIVE_LISTS_H
#define PLAN_LOWER_LIVE_LISTS_H

#include "plan/access.h"

typedef struct operand_use {
    tensor_id owner;
    bool writes;
    bool adds; // it adds to the tensor if the action accumulates
} operand_use;

// An output that may overwrite the bytes of an input.
typedef struct inplace_use {
    tensor_id from, to;
} inplace_use;

// One list of a program, node by node.
typedef struct list_use {
    const op_program *program; // NULL: an empty slot
    int32_t list;
    int32_t *first, *first_inplace; // [node + 1] into uses and inplaces
    operand_use *uses;
    inplace_use *inplaces;
} list_use;

// A hash table; it keeps its arena, all other fields begin as zero.
typedef struct list_uses {
    arena *a;
    list_use *lists;
    int64_t count, slots;
} list_uses;

NODISCARD status list_use_of(list_uses *t, const op_program *program, int32_t list,
                             const list_use **out);

#endif
