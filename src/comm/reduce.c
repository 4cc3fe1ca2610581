// Reducers: the program of a sum, made once, and its run over blocks (reduce.h).
//
// A tree over terms becomes steps as in a stack machine. Four terms that make a whole subtree are
// one step, so a tree of up to four inputs and a sequential reduction of any number are one loop
// over the whole range without an intermediate block. Larger trees keep blocks of partial sums in
// slots of 4 KiB each, which stay in the L1 cache.
#include "comm/reduce.h"
#include "comm/reduce_steps.h"

#include <string.h>

enum { SLOT_BYTES = 4096 };
_Static_assert((int)REDUCTION_AVG + 1 == (int)REDUCTION_COUNT, "tables list every reduction");

static const reduce_table *table_of(comm_vectors vectors)
{
    return vectors == COMM_AVX2 ? &comm_reduce_avx2 : &comm_reduce_scalar;
}

bool comm_reduce_can(dtype type, op_reduction reduction)
{
    return type >= 0 && type < DTYPE_COUNT && reduction >= 0 && reduction < REDUCTION_COUNT &&
           comm_reduce_scalar.sequential[type][reduction] != NULL;
}

static status reducer_begin(comm_vectors vectors, dtype type, op_reduction reduction,
                            int64_t divisor, comm_reducer *r)
{
    if (!comm_reduce_can(type, reduction)) {
        return fail(ST_UNSUPPORTED,
                    "fp8 and bool are not reduced, integers have no avg: %s, reduction %d",
                    dtype_name(type), (int)reduction);
    }
    ASSERT(divisor >= 1);
    r->type = type;
    r->reduction = reduction;
    r->vectors = vectors;
    r->scale = reduction == REDUCTION_AVG ? 1.0 / (double)divisor : 1.0;
    r->step_count = 0;
    return ST_OK;
}

status comm_reducer_sequential(comm_vectors vectors, dtype type, op_reduction reduction,
                               int32_t inputs, int64_t divisor, comm_reducer *out)
{
    ASSERT(inputs >= 1);
    TRY(reducer_begin(vectors, type, reduction, divisor, out));
    out->inputs = inputs;
    return ST_OK;
}

// ---- the tree ----------------------------------------------------------------------------------
typedef struct tree {
    comm_reducer *r;
    const comm_term *terms;
} tree;

// A term is a node: [i 2^k, min(i 2^k + 2^k, shards)).
static bool term_is_node(comm_term term, int32_t shards)
{
    if (term.begin < 0 || term.end <= term.begin || term.end > shards) return false;
    int64_t width = 1;
    while (width < term.end - term.begin) width *= 2;
    return term.begin % width == 0 && term.end == min_i64(term.begin + width, shards);
}

static status terms_check(const comm_term *terms, int32_t count, int32_t shards)
{
    if (count < 1 || count > COMM_REDUCE_MAX_TERMS) {
        return fail(ST_INTERNAL, "%d terms in a sum; between 1 and %d can be", count,
                    COMM_REDUCE_MAX_TERMS);
    }
    for (int32_t i = 0; i < count; i++) {
        if (!term_is_node(terms[i], shards)) {
            return fail(ST_INTERNAL, "term [%d, %d) is no node of the tree over %d shards",
                        terms[i].begin, terms[i].end, shards);
        }
        if (i > 0 && terms[i].begin < terms[i - 1].end) {
            return fail(ST_INTERNAL, "term [%d, %d) comes after [%d, %d): they must ascend",
                        terms[i].begin, terms[i].end, terms[i - 1].begin, terms[i - 1].end);
        }
    }
    return ST_OK;
}

// First term of [from, to) that begins at `shard` or later.
static int32_t term_from(const tree *t, int32_t from, int32_t to, int64_t shard)
{
    while (from < to && t->terms[from].begin < shard) from++;
    return from;
}

static int step_push(const tree *t, reduce_kind kind, int dest, int a, int b)
{
    ASSERT(t->r->step_count < COMM_REDUCE_MAX_TERMS && dest < COMM_REDUCE_MAX_SLOTS);
    t->r->steps[t->r->step_count++] =
        (comm_reduce_step){(int16_t)kind, (int16_t)dest, (int16_t)a, (int16_t)b};
    return ~dest;
}

// a + b = b + a to the bit (there is one NaN), so an operand in a slot may come first.
static int sum_push(const tree *t, int slot, int left, int right)
{
    if (left < 0 && right < 0) return step_push(t, REDUCE_MERGE, slot, left, right);
    if (left < 0) return step_push(t, REDUCE_ADD, slot, left, right);
    if (right < 0) return step_push(t, REDUCE_ADD, slot, right, left);
    return step_push(t, right == left + 1 ? REDUCE_PAIR : REDUCE_BOTH, slot, left, right);
}

// Steps for terms [from, to), all within the node [shard, shard + width). Returns where the sum is:
// an input, or ~slot with `slot` the first free one.
static int tree_build(const tree *t, int32_t from, int32_t to, int64_t shard, int64_t width,
                      int slot)
{
    ASSERT(from < to);
    while (to - from > 1) { // halves without terms are absent: down to where it forks
        const int32_t fork = term_from(t, from, to, shard + width / 2);
        width /= 2;
        if (fork > from && fork < to) {
            const int32_t l = term_from(t, from, fork, shard + width / 2);
            const int32_t r = term_from(t, fork, to, shard + width + width / 2);
            if (l == from + 1 && fork == l + 1 && r == fork + 1 && to == r + 1) {
                return step_push(t, REDUCE_QUAD, slot, from, from + 1);
            }
            const int left = tree_build(t, from, fork, shard, width, slot);
            const int right = tree_build(t, fork, to, shard + width, width, slot + (left < 0));
            return sum_push(t, slot, left, right);
        }
        if (fork == from) shard += width;
    }
    return from;
}

// The steps say ((x0 + x1) + x2) + ..., which is one loop.
static bool is_sequential(const comm_reducer *r)
{
    for (int32_t i = 0; i < r->step_count; i++) {
        const comm_reduce_step *s = &r->steps[i];
        const bool left =
            i == 0 ? s->kind == REDUCE_PAIR && s->a == 0 : s->kind == REDUCE_ADD && s->b == i + 1;
        if (!left) return false;
    }
    return true;
}

status comm_reducer_tree(comm_vectors vectors, dtype type, op_reduction reduction,
                         const comm_term *terms, int32_t count, int32_t shards, int64_t divisor,
                         comm_reducer *out)
{
    TRY(terms_check(terms, count, shards));
    TRY(reducer_begin(vectors, type, reduction, divisor, out));
    out->inputs = count;
    const bool exact = table_of(vectors)->step[type] == NULL || reduction == REDUCTION_MAX ||
                       reduction == REDUCTION_MIN;
    if (exact) return ST_OK; // the order does not matter: sequential
    int64_t width = 1;
    while (width < shards) width *= 2;
    const tree t = {out, terms};
    (void)tree_build(&t, 0, count, 0, width, 0);
    if (is_sequential(out)) out->step_count = 0;
    return ST_OK;
}

// ---- running -----------------------------------------------------------------------------------
// A range whose outputs are `out` from element `out_begin` on.
typedef struct range {
    const comm_reducer *r;
    const void *const *in;
    void *const *out;
    int32_t outs;
    int64_t begin, count, out_begin;
} range;

static void run_sequential(const range *a)
{
    table_of(a->r->vectors)
        ->sequential[a->r->type][a->r->reduction](
            &(reduce_sequential_args){.in = a->in,
                                      .out = a->out,
                                      .ins = a->r->inputs,
                                      .outs = a->outs,
                                      .begin = a->begin,
                                      .end = a->begin + a->count,
                                      .out_shift = a->out_begin - a->begin,
                                      .scale = a->r->scale});
}

static void run_step(const range *a, const comm_reduce_step *s, bool last, unsigned char *slots)
{
    const int64_t at = a->begin * dtype_bytes(a->r->type);
    reduce_step_args args = {.kind = (reduce_kind)s->kind,
                             .slot = last ? NULL : slots + s->dest * SLOT_BYTES,
                             .out = a->out,
                             .out_begin = a->out_begin,
                             .outs = a->outs,
                             .end = a->count,
                             .scale = a->r->scale};
    const int operands[4] = {s->a, s->kind == REDUCE_QUAD ? s->a + 1 : s->b, s->a + 2, s->a + 3};
    for (int k = 0; k < (s->kind == REDUCE_QUAD ? 4 : 2); k++) {
        args.operand[k] = operands[k] < 0 ? slots + ~operands[k] * SLOT_BYTES
                                          : (const unsigned char *)a->in[operands[k]] + at;
    }
    table_of(a->r->vectors)->step[a->r->type](&args);
}

static void run_tree(const range *a)
{
    const comm_reducer *r = a->r;
    if (r->step_count == 1) {
        run_step(a, &r->steps[0], true, NULL);
        return;
    }
    // Clearing it would cost more than a small sum.
    _Alignas(64)
        __attribute__((uninitialized)) unsigned char slots[COMM_REDUCE_MAX_SLOTS * SLOT_BYTES];
    const int64_t block = SLOT_BYTES / (r->type == DTYPE_F64 ? 8 : 4);
    for (int64_t i = 0; i < a->count; i += block) {
        range part = *a;
        part.begin += i;
        part.out_begin += i;
        part.count = min_i64(block, a->count - i);
        for (int32_t k = 0; k < r->step_count; k++) {
            run_step(&part, &r->steps[k], k + 1 == r->step_count, slots);
        }
    }
}

static void run_range(const range *a)
{
    if (a->r->step_count > 0) {
        run_tree(a);
    } else {
        run_sequential(a);
    }
}

// A block at a time into a buffer of the first cache, and from there past the caches.
static void run_streamed(const range *a)
{
    const reduce_table *table = table_of(a->r->vectors);
    const int64_t width = dtype_bytes(a->r->type), block = SLOT_BYTES / width;
    _Alignas(64) __attribute__((uninitialized)) unsigned char result[SLOT_BYTES];
    for (int64_t i = 0; i < a->count; i += block) {
        range part = *a;
        part.begin += i;
        part.count = min_i64(block, a->count - i);
        part.outs = 1;
        void *const to = result;
        part.out = &to;
        part.out_begin = 0;
        run_range(&part);
        for (int32_t k = 0; k < a->outs; k++) {
            table->stream((unsigned char *)a->out[k] + (a->out_begin + i) * width, result,
                          part.count * width);
        }
    }
    table->streamed();
}

void comm_reduce(const comm_reducer *r, const comm_reduce_args *args)
{
    ASSERT(args->outs >= 1 && args->begin >= 0 && args->count >= 0);
    const range all = {.r = r,
                       .in = args->in,
                       .out = args->out,
                       .outs = args->outs,
                       .begin = args->begin,
                       .count = args->count,
                       .out_begin = args->begin};
    if (args->stores == COMM_STORE_STREAM) {
        run_streamed(&all);
    } else {
        run_range(&all);
    }
}

void comm_reduce_two(comm_vectors vectors, dtype type, op_reduction reduction, const void *a,
                     const void *b, void *out, int64_t count)
{
    if (count == 0) return; // in and out may be NULL, from which nothing may be counted
    const void *const in[2] = {a, b};
    void *const outs[1] = {out};
    table_of(vectors)->sequential[type][reduction](&(reduce_sequential_args){
        .in = in, .out = outs, .ins = 2, .outs = 1, .end = count, .scale = 1.0});
}

void comm_reduce_scale(comm_vectors vectors, dtype type, const void *in, void *out, int64_t count,
                       double scale)
{
    if (count == 0) return;
    const void *const ins[1] = {in};
    void *const outs[1] = {out};
    table_of(vectors)->sequential[type][REDUCTION_SUM](&(reduce_sequential_args){
        .in = ins, .out = outs, .ins = 1, .outs = 1, .end = count, .scale = scale});
}

void comm_reduce_widen(comm_vectors vectors, dtype type, const void *in, float *out, int64_t count)
{
    ASSERT(type == DTYPE_BF16 || type == DTYPE_F16);
    if (count == 0) return;
    table_of(vectors)->widen[type == DTYPE_F16](in, out, count);
}

void comm_reduce_narrow(comm_vectors vectors, dtype type, const float *in, void *out, int64_t count,
                        double scale)
{
    ASSERT(type == DTYPE_BF16 || type == DTYPE_F16);
    if (count == 0) return;
    table_of(vectors)->narrow[type == DTYPE_F16](in, out, count, (float)scale);
}
