// The bytes that an action accesses. Live intervals of tensors, the verifier, poison and the
// executor's count of touched bytes are all derived from this description.
//
// An action accesses the operands of its nodes (rows and columns of the plan's tensors), their
// workspaces and packed weights, fields of the step block, and the items of its communication.
// Bytes are counted from the beginning of the tensor that owns them, so they do not depend on
// offsets; a part of a tensor is resolved to the whole. Accesses do not depend on the micro-batch:
// they cover all rows of batch tensors.
#ifndef PLAN_ACCESS_H
#define PLAN_ACCESS_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum access_kind {
    ACCESS_READ,
    ACCESS_WRITE,
    ACCESS_UPDATE // reads and writes: an accumulator, or a workspace that an earlier node filled
} access_kind;

// Operands of a node: inputs first, then outputs, then tensors that the program does not name.
enum {
    ACCESS_OUT = OP_MAX_IN,
    ACCESS_WORKSPACE = OP_MAX_IN + OP_MAX_OUT,
    ACCESS_PACKED,
    ACCESS_STEP,  // fields of the step block
    ACCESS_COUNT, // the tensor that counts the rows of operand k: ACCESS_COUNT + k
    ACCESS_ITEM = ACCESS_COUNT + ACCESS_WORKSPACE, // an item of a communication
    ACCESS_NODE_MAX =
        ACCESS_COUNT + ACCESS_WORKSPACE + 8 // accesses of one node, with some ranges of fields
};

typedef struct plan_access {
    int32_t ref;             // the tensor that owns the bytes, as in bindings; -1: no access
    int64_t begin, bytes;    // from its first byte
    int64_t column, columns; // of its columns; columns 0: all
    int64_t needs, has;      // bytes that the operand's tensor or part must have, and that it has
    access_kind kind;
    int32_t operand;
} plan_access;

// The access of a node to operand k (inputs, then outputs) of its program: the tensor that owns its
// bytes, and the view's first column and row in it. owner TENSOR_NONE: the node has no such
// operand, or it is the step block.
typedef struct operand_access {
    tensor_id owner;
    int64_t column, row;
    access_kind kind;
} operand_access;
operand_access plan_access_operand(const op_program *program, const op_node *node, int k,
                                   bool accumulate);
// Returns the tensor that counts the rows of operand k and that the node reads; TENSOR_NONE: there
// is none, or the node makes it.
tensor_id plan_access_count(const op_program *program, const op_node *node, int k);
// Returns how a node accesses its workspace.
access_kind plan_access_workspace(const op_node *node);

// Returns the tensor that owns the bytes of `ref`, and in *begin where they begin in it.
int32_t plan_access_owner(const plan *p, int32_t ref, int64_t *begin);
// Returns the highest end in the arena of the tensors that an action accesses.
int64_t plan_access_end(const plan *p, const plan_action *action);

// Lists the accesses of node `at` of a compute or optimizer action, reads before writes. Returns
// their number.
int32_t plan_access_node(const plan *p, const plan_action *action, int64_t at,
                         plan_access out[ACCESS_NODE_MAX]);

// Return the bytes that the rank at `mesh` sends and receives for item `item` of a communication;
// bytes 0: none.
plan_access plan_access_item_in(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                int32_t item);
plan_access plan_access_item_out(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                 int32_t item);
// Returns the distance in bytes from one rank's piece of the item to the next.
int64_t plan_access_piece_bytes(const plan *p, const plan_comm *c, int32_t item);

// Calls `visit` with every access of an action. The inputs of all items of a communication come
// before the outputs.
typedef status (*access_visit)(void *context, const plan_access *access);
// Returns the action as a node's operands see it: with all rows if the node finds its own.
plan_action plan_action_rows(const plan_action *action, const op_node *node);
NODISCARD status plan_access_each(const plan *p, const plan_mesh *mesh, const plan_action *action,
                                  access_visit visit, void *context);

#ifdef __cplusplus
}
#endif
#endif
