// The row of an operation: its signature, its traits, and the functions that place, cut, price and
// differentiate it. Cost, verifier, poison, recomputation and bisect read rows; none of them
// switches on operation codes.
#ifndef OP_OP_KIND_H
#define OP_OP_KIND_H

#include "op/collective.h"
#include "op/op_program.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// The placement of one tensor along one mesh axis. PARTIAL: every rank holds a term of the sum.
typedef enum place_kind { PLACE_REPLICATE, PLACE_SHARD, PLACE_PARTIAL, PLACE_ANY } place_kind;
typedef struct placement {
    place_kind kind;
    int8_t dim; // of PLACE_SHARD
} placement;
// One way in which an operation can be cut along an axis: these inputs give these outputs. The
// first rule of every row is all-replicate.
typedef struct op_rule {
    placement in[OP_MAX_IN], out[OP_MAX_OUT];
} op_rule;

typedef struct op_cost {
    double flops, bytes_read, bytes_written;
} op_cost;

// The class by which cost/ prices an operation.
typedef enum op_cost_class {
    COST_MEMORY,    // by the bytes that it moves and, if `pointwise`, its arithmetic on them
    COST_GEMM,      // by the shape that `gemm` names, or by FLOPs where it names none
    COST_ATTENTION, // by FLOPs, at attention's share of the peak
    COST_FREE       // a collective, which is priced as a transfer
} op_cost_class;

// Which gradient an operation computes. GRAD_OF_NONE: a value of the forward pass, or of the step.
typedef enum op_grad_of { GRAD_OF_NONE, GRAD_OF_INPUT, GRAD_OF_WEIGHT } op_grad_of;

// The head computes logits chunk by chunk of rows: their statistics first where the vocabulary is
// cut in order, then losses and gradients.
typedef enum op_logits { LOGITS_NONE, LOGITS_STATS, LOGITS_LOSS } op_logits;

enum { OP_LIMIT_EXPERTS = 4096 }; // of LIMIT_ROWS

// The rows that an operation reorders by expert: those of input 0 or of output 0.
typedef enum op_sorts { SORTS_NOTHING, SORTS_INPUT, SORTS_OUTPUT } op_sorts;

// One call of an operation as the `check` of its row sees it: its extents by the letters of its
// signature.
typedef struct op_facts {
    const op_attrs *attrs;
    const op_piece *piece;
    int64_t extent[128]; // by letter; -1: every operand with this letter is missing
    uint32_t in, out;    // bit i: operand i is there
    int64_t seq, cache_seq;
    double loss_divisor;
    bool has_step;
} op_facts;

// One row per operation: everything that is known about it without running it.
typedef struct op_kind {
    op_code code;
    const char *name;
    // The signature: operands as text, a word each. A letter for the type, then a letter for each
    // dim. A letter that comes again has the same extent again, so "fNK fMK fM" and "fNM" say
    // everything that is checked and created for a GEMM with a bias. "f*": any shape, the same in
    // all words with a star. ".": the step block.
    //
    //   f floating point   g floating point, created with the program's gradient type   p fp32
    //   s statistic: fp32 (fp64 in tests)   i integers, created as int32   a any type  m f i bytes
    const char *in, *out;
    const char *made;                   // names of the outputs that it creates, a word each
    uint32_t optional_in, optional_out; // bit i: operand i may be missing
    uint32_t accumulates;               // bit o: output o is "+="; the others are written
    uint32_t picks; // bit i: of input i only the rows are read that another input's ids name
    uint32_t tiles; // bit i: input i may be consumed tile by tile while a GEMM still computes it
    bool updates_state;               // output o is the new value of input o + 1, in place
    bool by_element;                  // of these: each element alone, so kernels may cut anywhere
    bool takes_grad;                  // input 0 is the gradient of weight attrs.tensor_index
    int slots_in;                     // operand: slots of experts (moe.rebalance); 0: none
    bool merges_sums;                 // adds an accumulator to another one of the same weight
    uint32_t step_reads, step_writes; // bits of step_field (op/step.h)
    op_cost_class cost_class;
    bool pointwise; // looks at an element, or a row, at a time
    // early frameworks ran it as several kernels (norms without mean, rotations, gates)
    bool composed;
    // GEMMs: letters of the signature for rows and columns of the result, and the summed dim. With
    // attrs.experts the letter of the rows of tokens is divided among that many matrices.
    const char *gemm;
    op_grad_of grad_of;
    op_logits logits;
    bool communicates;        // a collective of the ranks along attrs.axis; a shift is a SEND
    op_collective collective; // if it communicates
    op_sorts sorts;
    bool no_kernel; // it can be planned, priced and simulated only
    // Its rows are in an order of their own. If an action is on some sequences of a micro-batch,
    // the kernel finds their rows itself (kern_call.sequence_count); operands are whole.
    bool finds_rows;
    int host_issues;        // routing: further kernels that the host issues for each of these
    bool host_waits;        // the host waits for the result before it issues the next operation
    bool kept_by_selective; // recompute `selective` keeps its results (GEMMs, attention)
    bool kept_always;       // so does `full`
    // Output o may reuse the bytes of input inplace[o] if this is the input's last use; -1: never.
    int8_t inplace[OP_MAX_OUT];
    // Checks the inputs and the outputs given, and creates the outputs that are TENSOR_NONE and
    // either required or wanted (bit o of `wanted`: only optional outputs need it).
    status (*infer)(op_program *p, op_node *node, uint32_t wanted);
    // The placement rules, as data; *count <= OP_MAX_RULES. Operations without rows of tokens have
    // only the first one. Shard 0 of tokens is by whole sequences if an operation reads more than
    // one row at a time. Shard 1 of a tensor with parts (q, k and v; gate and up) cuts every part
    // separately. The entry of a missing operand has no meaning.
    void (*place)(const op_program *p, const op_node *node, op_rule *rules, int *count);
    // Changes `piece`, a copy of `node`, to piece `at` of `ways` under a rule. p has the shapes of
    // the whole. NULL: a piece has the attributes of the whole.
    void (*cut)(const op_program *p, const op_node *node, int rule, int ways, int at,
                op_node *piece);
    op_cost (*cost)(const op_program *p, const op_node *node, const extent_binding *bound);
    // Appends the operations of its gradients, using op_grad_* below. NULL: not differentiable.
    status (*gradient)(op_program *p, const op_node *node);
    // Asserts the conditions of a call that the signature cannot express. NULL: none.
    void (*check)(const op_facts *facts);
} op_kind;

const op_kind *op_kind_of(op_code code); // never NULL for a valid code
static inline bool op_communicates(op_code code)
{
    return op_kind_of(code)->communicates;
}
static inline bool op_has_kernel(op_code code)
{
    return !op_kind_of(code)->communicates && !op_kind_of(code)->no_kernel;
}
bool op_type_fits(char letter, dtype type); // the first letter of a signature's word
// The shape of a GEMM: `count` GEMMs of (m, k) and (k, n). False: the row names no shape.
typedef struct op_gemm {
    double m, n, k, count;
} op_gemm;
bool op_gemm_of(const op_program *p, const op_node *node, const extent_binding *bound,
                op_gemm *out);
// Piece `at` of `ways` of a node that rule `rule` cuts; its operands are still those of the whole.
void op_node_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                 op_node *piece);
// The input that an operation may take tile by tile from the GEMM before it; -1: none.
int op_tiled_input(op_code code);
// Whether an operation adds to the sums of the step block, and whether it decides on the update.
bool op_adds_loss(op_code code);
bool op_adds_norm(op_code code);
bool op_adds_loads(op_code code); // of experts
bool op_decides(op_code code);

#ifdef __cplusplus
}
#endif
#endif
