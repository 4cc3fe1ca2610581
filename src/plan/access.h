// Which bytes an action touches: the one description that the live intervals of tensors, the
// verifier, poison and the executor's count of touched bytes are made from.
//
// An action touches operands of its nodes (rows and columns of the plan's tensors), their
// workspaces and packed weights, fields of the step block, and, if it communicates, the items of
// its communication. Bytes are counted from the beginning of the tensor that owns them, so nothing
// here depends on offsets: parts of tensors are resolved to their wholes. What an action touches
// does not depend on its micro-batch: of batch tensors all rows are taken.
#ifndef PLAN_ACCESS_H
#define PLAN_ACCESS_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum access_kind {
    ACCESS_READ,
    ACCESS_WRITE,
    ACCESS_UPDATE // reads and writes: an accumulator, or a workspace that a node before has filled
} access_kind;

// Which operand of a node: inputs first, then outputs, then what no program names.
enum {
    ACCESS_OUT = OP_MAX_IN,
    ACCESS_WORKSPACE = OP_MAX_IN + OP_MAX_OUT,
    ACCESS_PACKED,
    ACCESS_STEP,  // fields of the step block
    ACCESS_COUNT, // what counts the rows of operand k: ACCESS_COUNT + k
    ACCESS_ITEM = ACCESS_COUNT + ACCESS_WORKSPACE, // of a communication: an item
    ACCESS_NODE_MAX =
        ACCESS_COUNT + ACCESS_WORKSPACE + 8 // of one node: with some stretches of fields
};

typedef struct plan_access {
    int32_t ref;          // the tensor that owns the bytes, as in bindings; -1: nothing is touched
    int64_t begin, bytes; // from its first byte
    int64_t column, columns; // of its columns; columns 0: all
    int64_t needs, has;      // bytes that the operand's tensor, or its part, must have, and has
    access_kind kind;
    int32_t operand;
} plan_access;

// How a node touches operand k (inputs, then outputs) of its program: the tensor that owns its
// bytes, and the view's first column and row in it. owner TENSOR_NONE: the node has no such
// operand, or it is the step block.
typedef struct operand_access {
    tensor_id owner;
    int64_t column, row;
    access_kind kind;
} operand_access;
operand_access plan_access_operand(const op_program *program, const op_node *node, int k,
                                   bool accumulate);
// The tensor that counts the rows of operand k, which the node reads; TENSOR_NONE: none does, or
// the node makes it.
tensor_id plan_access_count(const op_program *program, const op_node *node, int k);
// How a node touches its workspace.
access_kind plan_access_workspace(const op_node *node);

// The tensor that owns the bytes of `ref`, and where in it they begin.
int32_t plan_access_owner(const plan *p, int32_t ref, int64_t *begin);
// Where in the arena the last tensor ends of those that an action touches.
int64_t plan_access_end(const plan *p, const plan_action *action);

// All that node `at` of a compute or optimizer action touches, in the order in which it does: a
// node reads before it writes. Returns how many.
int32_t plan_access_node(const plan *p, const plan_action *action, int64_t at,
                         plan_access out[ACCESS_NODE_MAX]);

// What a rank at `mesh` gives to item `item` of a communication, and what it gets; bytes 0:
// nothing.
plan_access plan_access_item_in(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                int32_t item);
plan_access plan_access_item_out(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                 int32_t item);
// Bytes from one rank's piece of the item to the next.
int64_t plan_access_piece_bytes(const plan *p, const plan_comm *c, int32_t item);

// Calls `visit` with all that an action touches: items of a communication are all given before any
// is got.
typedef status (*access_visit)(void *context, const plan_access *access);
NODISCARD status plan_access_each(const plan *p, const plan_mesh *mesh, const plan_action *action,
                                  access_visit visit, void *context);

#ifdef __cplusplus
}
#endif
#endif
