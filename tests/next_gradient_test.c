// Gradients of the layer that predicts the token after the next, and of the head above it, against
// central differences in double. Both outputs of the layer and both losses of the head count.
#include "base/host.h"
#include "kernels/backend_table.h"
#include "kernels/interpret.h"
#include "model/model.h"
#include "op/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, LAYERS = 1, VOCAB = 20 };

typedef struct subject {
    arena *a;
    op_program *p;
    kern_interpret *it;
} subject;

static void must(status st)
{
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

// A value in [-1, 1) by tensor and element.
static double value_of(int64_t tensor, int64_t element)
{
    uint64_t x = (uint64_t)(tensor * 7919 + element + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (double)(x >> 11) * 0x1p-52 - 1.0;
}

static double batch_value(const op_tensor *t, int64_t element)
{
    const bool is_id = strstr(t->name, "ids") != NULL || strstr(t->name, "labels") != NULL;
    if (!is_id) return strcmp(t->name, "positions") == 0 ? (double)(element % SEQ) : 0.0;
    // The last position of a sequence has no token after the next.
    if (strcmp(t->name, "next_labels") == 0 && element % SEQ == SEQ - 1) return -100.0;
    return (double)((element * 7 + 3) % VOCAB);
}

static void fill(const subject *s)
{
    for (tensor_id t = 0; t < (tensor_id)s->p->tensor_count; t++) {
        const op_tensor *tensor = &s->p->tensors[t];
        const bool is_given = tensor->role == ROLE_INPUT || tensor->role == ROLE_WEIGHT ||
                              tensor->role == ROLE_CONSTANT || tensor->role == ROLE_INPUT_GRAD ||
                              tensor->role == ROLE_BATCH;
        if (!is_given || tensor->view_of != TENSOR_NONE) continue;
        const int64_t count = kern_interpret_elements(s->it, t);
        for (int64_t e = 0; e < count; e++) {
            const bool is_batch = tensor->role == ROLE_BATCH;
            kern_interpret_put(s->it, t, e, is_batch ? batch_value(tensor, e) : value_of(t, e));
        }
    }
}

// Row `row` of a model with a layer above the last norm: LAYERS + 1, or the head behind it.
static void subject_init(subject *s, bool is_latent, int32_t row)
{
    run_config r = {.model = {.layers = LAYERS,
                              .dim = 12,
                              .heads = 2,
                              .vocab = VOCAB,
                              .context = SEQ,
                              .kv_heads = 2,
                              .ffn_dim = 8,
                              .arch = RUN_ARCH_LLAMA,
                              .mtp_layers = -1},
                    .train = {.seq = SEQ}};
    decoder_spec spec;
    memset(s, 0, sizeof(*s));
    must(arena_create("gradients", 0, &s->a));
    must(model_spec_from_config(host_real(), s->a, &r, &spec));
    // Without experts, whose choice has no slope: all layers below are dense, so this one is too.
    spec.experts = (model_experts){.count = 4,
                                   .top_k = 2,
                                   .ffn_dim = 8,
                                   .every = 1,
                                   .dense_layers = LAYERS,
                                   .scale = 1.0f,
                                   .sigmoid = true,
                                   .correction = true,
                                   .group_pairs = true};
    spec.arch = is_latent ? "deepseek_v3" : "glm4_moe";
    spec.next_layers = 1;
    if (is_latent) {
        spec.latent = (model_latent){.q_rank = 6, .kv_rank = 5, .nope_dim = 4, .rope_dim = 2};
        spec.latent.value_dim = 3;
    }
    const model_options options = {.purpose = PURPOSE_TRAIN,
                                   .compute = DTYPE_F64,
                                   .grad = DTYPE_F64,
                                   .seq = SEQ,
                                   .next_loss = 0.5f};
    op_model *m = NULL;
    must(model_build(s->a, &spec, &options, &m));
    assert_int_equal(m->next_rows, 1);
    assert_int_equal(m->layer_count, LAYERS + 3);
    s->p = m->programs[m->layers[row].program];
    for (int64_t t = 0; t < s->p->tensor_count; t++) {
        if (s->p->tensors[t].type < DTYPE_F64) s->p->tensors[t].type = DTYPE_F64;
    }
    static const kern_context ref = {.backend = &kern_backend_ref};
    kern_interpret_config wanted = {.program = s->p, .context = &ref, .loss_divisor = 2.0};
    wanted.bound.value[EXTENT_TOKENS] = ROWS;
    wanted.bound.value[EXTENT_SEQS] = SEQS;
    must(kern_interpret_create(s->a, &wanted, &s->it));
    fill(s);
}

// Of a layer: its outputs times fixed numbers. Of the head: both losses of all tokens.
static double loss(const subject *s)
{
    double sum = 0.0;
    const int64_t nodes = s->p->lists[OP_BACKWARD_WEIGHT].count;
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    for (int k = 0; k < s->p->output_count; k++) {
        const tensor_id y = s->p->outputs[k], d = s->p->d_outputs[k];
        for (int64_t e = 0; e < kern_interpret_elements(s->it, y); e++) {
            sum += kern_interpret_get(s->it, y, e) * kern_interpret_get(s->it, d, e);
        }
    }
    if (s->p->output_count > 0) return sum;
    must(kern_interpret_run(s->it, OP_BACKWARD_WEIGHT, false));
    for (int64_t i = 0; i < nodes; i++) {
        const op_node *node = &s->p->lists[OP_BACKWARD_WEIGHT].nodes[i];
        if (node->code != OP_HEAD_LOSS) continue;
        for (int64_t e = 0; e < ROWS; e++) {
            sum += kern_interpret_get(s->it, node->out[0], e) / op_loss_divisor(&node->attrs, 2.0);
        }
    }
    return sum;
}

static double slope(const subject *s, tensor_id t, int64_t element)
{
    const double step = 1e-5, here = kern_interpret_get(s->it, t, element);
    kern_interpret_put(s->it, t, element, here + step);
    const double above = loss(s);
    kern_interpret_put(s->it, t, element, here - step);
    const double below = loss(s);
    kern_interpret_put(s->it, t, element, here);
    return (above - below) / (2.0 * step);
}

// Compares with the sum of all gradients of the tensor: each use of a weight has its own.
static void tensor_check(const subject *s, tensor_id t)
{
    const int64_t count = kern_interpret_elements(s->it, t);
    double *got = NULL, worst = 0.0, largest = 1e-2;
    int found = 0;
    must(arena_new(s->a, count, &got));
    (void)loss(s);
    must(kern_interpret_run(s->it, OP_BACKWARD_INPUT, false));
    if (s->p->output_count > 0) must(kern_interpret_run(s->it, OP_BACKWARD_WEIGHT, false));
    for (tensor_id d = 0; d < (tensor_id)s->p->tensor_count; d++) {
        bool is_mine = s->p->tensors[d].role == ROLE_WEIGHT_GRAD && s->p->tensors[d].of == t;
        for (int k = 0; k < s->p->input_count; k++) {
            is_mine = is_mine || (s->p->inputs[k] == t && s->p->d_inputs[k] == d);
        }
        found += is_mine ? 1 : 0;
        for (int64_t e = 0; is_mine && e < count; e++) got[e] += kern_interpret_get(s->it, d, e);
    }
    assert_true(found >= 1);
    for (int64_t e = 0; e < count; e++) {
        const double want = slope(s, t, e), error = fabs(want - got[e]);
        worst = fmax(worst, isnan(error) ? HUGE_VAL : error);
        largest = fmax(largest, fabs(want));
    }
    if (worst > 1e-6 * largest) {
        print_error("the gradient of %s is off by %g of its largest\n", s->p->tensors[t].name,
                    worst / largest);
    }
    assert_true(worst <= 1e-6 * largest);
}

// Returns the number of inputs and weights.
static int row_check(bool is_latent, int32_t row)
{
    subject s;
    int checked = 0;
    subject_init(&s, is_latent, row);
    for (tensor_id t = 0; t < (tensor_id)s.p->tensor_count; t++) {
        const op_tensor *tensor = &s.p->tensors[t];
        if (tensor->role != ROLE_INPUT && tensor->role != ROLE_WEIGHT) continue;
        if (tensor->view_of != TENSOR_NONE) continue;
        tensor_check(&s, t);
        checked++;
    }
    arena_destroy(s.a);
    return checked;
}

// h, the last norm, the embedding, enorm, hnorm, eh_proj, 2 norms, attention, the MLP, a norm.
static void the_layer(void **state)
{
    (void)state;
    assert_int_equal(row_check(false, LAYERS + 1), 6 + 2 + 2 + 2 + 1);
    assert_int_equal(row_check(true, LAYERS + 1), 6 + 2 + 7 + 2 + 1);
}

// Two inputs and one matrix.
static void the_head(void **state)
{
    (void)state;
    assert_int_equal(row_check(false, LAYERS + 2), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_layer), cmocka_unit_test(the_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
