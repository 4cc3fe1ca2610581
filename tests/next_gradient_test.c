// Gradients of the layer that predicts the token after the next, and of the head above it, against
// central differences in double. Both outputs of the layer and both losses of the head count.
#include "base/host.h"
#include "fixtures/kernels/gradient_fixture.h"
#include "model/model.h"
#include "op/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, LAYERS = 1, VOCAB = 20 };

static double batch_value(const op_tensor *t, int64_t element)
{
    const bool is_id = strstr(t->name, "ids") != NULL || strstr(t->name, "labels") != NULL;
    if (!is_id) return strcmp(t->name, "positions") == 0 ? (double)(element % SEQ) : 0.0;
    // The last position of a sequence has no token after the next.
    if (strcmp(t->name, "next_labels") == 0 && element % SEQ == SEQ - 1) return -100.0;
    return (double)((element * 7 + 3) % VOCAB);
}

// Of a layer: its outputs times fixed numbers. Of the head: both losses of all tokens.
static double loss(const gradient_subject *s)
{
    double sum = 0.0;
    const int64_t nodes = s->p->lists[OP_BACKWARD_WEIGHT].count;
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    if (s->p->output_count > 0) return gradient_outputs(s);
    must(kern_interpret_run(s->it, OP_BACKWARD_WEIGHT, false));
    for (int64_t i = 0; i < nodes; i++) {
        const op_node *node = &s->p->lists[OP_BACKWARD_WEIGHT].nodes[i];
        if (node->code != OP_HEAD_LOSS) continue;
        for (int64_t e = 0; e < ROWS; e++) {
            sum += kern_interpret_get(s->it, node->out[0], e) /
                   op_loss_divisor(&node->attrs, s->divisor);
        }
    }
    return sum;
}

// Row `row` of a model with a layer above the last norm: LAYERS + 1, or the head behind it.
static void subject_init(gradient_subject *s, bool is_latent, int32_t row)
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
    *s = (gradient_subject){.divisor = 2.0, .loss = loss};
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
    gradient_open(s, ROWS, SEQS, 0);
    gradient_fill(s, batch_value);
}

// Returns the number of inputs and weights.
static int row_check(bool is_latent, int32_t row)
{
    gradient_subject s;
    int checked = 0;
    subject_init(&s, is_latent, row);
    for (tensor_id t = 0; t < (tensor_id)s.p->tensor_count; t++) {
        const op_tensor *tensor = &s.p->tensors[t];
        if (tensor->role != ROLE_INPUT && tensor->role != ROLE_WEIGHT) continue;
        if (tensor->view_of != TENSOR_NONE) continue;
        assert_true(gradient_is_right(&s, is_latent ? "latent" : "dense", t));
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
