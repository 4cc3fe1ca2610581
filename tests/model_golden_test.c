// Whole models against the reference: logits, loss, every gradient, greedy generation.
//
// Each case's folder is imported and its programs are run layer by layer by the interpreter on `ref`,
// without plan or executor. So this proves blocks, gradient rules, kernels and the import together;
// that the trainer's plans do the same work is proved elsewhere.
#include "fixtures/base/test_part.h"
#include "fixtures/base/test_paths.h"
#include "kernels/interpret.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                 \
    do {                                                         \
        if ((call) != ST_OK) fail_msg("%s", error_last()->text); \
    } while (0)

// ---- a model that runs --------------------------------------------------------------------------

typedef struct whole {
    arena *a;
    const op_model *m;
    kern_interpret **layers;
    float **weights; // by weight; shared by layers
} whole;

static void *aligned(arena *a, int64_t bytes)
{
    char *memory = NULL;
    OK(arena_alloc(a, bytes + ALIGN_TENSOR, (void **)&memory));
    return memory + (ALIGN_TENSOR - (uintptr_t)memory % ALIGN_TENSOR) % ALIGN_TENSOR;
}

static float **weights_read(arena *a, const safetensors *set, const decoder_spec *spec,
                            const op_model *m)
{
    float **weights = NULL;
    OK(arena_new(a, m->weight_count, &weights));
    for (int64_t w = 0; w < m->weight_count; w++) {
        weights[w] = aligned(a, m->weights[w].rows * m->weights[w].columns * 4);
        OK(model_weight_read(set, spec, m, w, weights[w]));
    }
    return weights;
}

static void layer_bind(whole *x, int32_t l)
{
    const op_layer *layer = &x->m->layers[l];
    const op_program *p = x->m->programs[layer->program];
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const op_tensor *tensor = &p->tensors[t];
        if (tensor->role == ROLE_WEIGHT) {
            assert_true(layer->weight_of[t] >= 0);
            kern_interpret_bind(x->layers[l], t, x->weights[layer->weight_of[t]]);
        }
        if (tensor->role != ROLE_CONSTANT) continue;
        const op_constant *c = x->m->constants;
        while (c < x->m->constants + x->m->constant_count && strcmp(c->name, tensor->name) != 0) {
            c++;
        }
        assert_true(c < x->m->constants + x->m->constant_count);
        for (int64_t i = 0; i < c->rows * c->columns; i++) {
            kern_interpret_put(x->layers[l], t, i, (double)c->data[i]);
        }
    }
}

static whole whole_make(arena *a, const op_model *m, float **weights, int64_t tokens, int64_t seqs,
                        int64_t cache)
{
    whole x = {.a = a, .m = m, .weights = weights};
    OK(arena_new(a, m->layer_count, &x.layers));
    for (int32_t l = 0; l < m->layer_count; l++) {
        const kern_hint hint = {.threads = 1};
        kern_context *kernels = NULL;
        OK(kern_context_create(a, "ref", &hint, &kernels));
        const kern_interpret_config how = {
            .program = m->programs[m->layers[l].program],
            .bound.value = {1, tokens, seqs, cache},
            .context = kernels,
            .loss_divisor = (double)tokens,
        };
        OK(kern_interpret_create(a, &how, &x.layers[l]));
        layer_bind(&x, l);
    }
    return x;
}

// The tensor of that name and role; TENSOR_NONE if the program has none.
static tensor_id tensor_find(const op_program *p, tensor_role role, const char *name)
{
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        if (p->tensors[t].role == role && strcmp(p->tensors[t].name, name) == 0) return t;
    }
    return TENSOR_NONE;
}

static void batch_set(whole *x, const char *name, const int64_t *values, int64_t count)
{
    for (int32_t l = 0; l < x->m->layer_count; l++) {
        const op_program *p = x->m->programs[x->m->layers[l].program];
        const tensor_id t = tensor_find(p, ROLE_BATCH, name);
        if (t == TENSOR_NONE) continue;
        assert_int_equal(kern_interpret_elements(x->layers[l], t), count);
        for (int64_t i = 0; i < count; i++) {
            kern_interpret_put(x->layers[l], t, i, (double)values[i]);
        }
    }
}

static void activation_copy(kern_interpret *from, tensor_id source, kern_interpret *to,
                            tensor_id target)
{
    const kern_tensor s = kern_interpret_tensor(from, source),
                      t = kern_interpret_tensor(to, target);
    assert_true(s.dims[0] == t.dims[0] && s.dims[1] == t.dims[1]);
    memcpy(t.data, s.data, (size_t)(s.dims[0] * s.dims[1]) * sizeof(float));
}

static void forward(whole *x)
{
    for (int32_t l = 0; l < x->m->layer_count; l++) {
        const op_program *p = x->m->programs[x->m->layers[l].program];
        if (l > 0) {
            const op_program *below = x->m->programs[x->m->layers[l - 1].program];
            activation_copy(x->layers[l - 1], below->outputs[0], x->layers[l], p->inputs[0]);
        }
        OK(kern_interpret_run(x->layers[l], OP_FORWARD, false));
    }
}

// Sums of the gradients over all uses of each weight, as accumulated.
static double **backward(whole *x)
{
    double **grads = NULL;
    OK(arena_new(x->a, x->m->weight_count, &grads));
    for (int64_t w = 0; w < x->m->weight_count; w++) {
        OK(arena_new(x->a, x->m->weights[w].rows * x->m->weights[w].columns, &grads[w]));
    }
    for (int32_t l = x->m->layer_count - 1; l >= 0; l--) {
        const op_layer *layer = &x->m->layers[l];
        const op_program *p = x->m->programs[layer->program];
        const bool is_head = l == x->m->layer_count - 1;
        OK(kern_interpret_run(x->layers[l], OP_RECOMPUTE, false));
        if (is_head) OK(kern_interpret_run(x->layers[l], OP_BACKWARD_WEIGHT, false));
        OK(kern_interpret_run(x->layers[l], OP_BACKWARD_INPUT, false));
        if (!is_head) OK(kern_interpret_run(x->layers[l], OP_BACKWARD_WEIGHT, false));
        if (l > 0) {
            const op_program *below = x->m->programs[x->m->layers[l - 1].program];
            activation_copy(x->layers[l], p->d_inputs[0], x->layers[l - 1], below->d_outputs[0]);
        }
        for (tensor_id t = 0; t < p->tensor_count; t++) {
            if (p->tensors[t].role != ROLE_WEIGHT_GRAD) continue;
            double *sum = grads[layer->weight_of[p->tensors[t].of]];
            const int64_t count = kern_interpret_elements(x->layers[l], t);
            for (int64_t i = 0; i < count; i++) sum[i] += kern_interpret_get(x->layers[l], t, i);
        }
    }
    return grads;
}

// ---- a case of the reference --------------------------------------------------------------------

typedef struct golden {
    const char *name;
    arena *a;
    char folder[1024];
    decoder_spec spec;
    safetensors *weights, *tensors;
    json *about;
    int64_t batch, seq;
    int64_t *ids, *labels, *positions, *documents; // documents NULL: not packed
} golden;

static int64_t *ints(const golden *g, const char *name)
{
    const safetensors_entry *e = safetensors_find(g->tensors, name);
    if (e == NULL) return NULL;
    int64_t *values = NULL;
    OK(arena_new(g->a, e->dims[0] * e->dims[1], &values));
    for (int64_t i = 0; i < e->dims[0] * e->dims[1]; i++) {
        values[i] = (int64_t)dtype_load(e->type, e->data, i);
    }
    return values;
}

static void golden_open(golden *g, const char *name)
{
    char local[256], path[1100];
    memset(g, 0, sizeof(*g));
    g->name = name;
    OK(arena_create("test", 0, &g->a));
    snprintf(local, sizeof(local), "golden/models/%s", name);
    test_shared(local, g->folder);
    snprintf(path, sizeof(path), "%s/golden.json", g->folder);
    OK(json_read(host_real(), path, 1 << 24, &g->about));
    OK(model_spec_from_hf(host_real(), g->a, g->folder, &g->spec));
    // Fine-tuning would drop out; the reference does not.
    g->spec.dropout_attention = g->spec.dropout_embedding = g->spec.dropout_residual = 0.0f;
    OK(safetensors_open_mapped(host_real(), g->folder, &g->weights));
    snprintf(path, sizeof(path), "%s/golden.safetensors", g->folder);
    OK(safetensors_open_mapped(host_real(), path, &g->tensors));
    const safetensors_entry *e = safetensors_find(g->tensors, "input_ids");
    g->batch = e->dims[0];
    g->seq = e->dims[1];
    g->ids = ints(g, "input_ids");
    g->labels = ints(g, "labels");
    g->documents = ints(g, "doc_ids");
    g->positions = ints(g, "position_ids");
    if (g->positions == NULL) {
        OK(arena_new(g->a, g->batch * g->seq, &g->positions));
        for (int64_t i = 0; i < g->batch * g->seq; i++) g->positions[i] = i % g->seq;
    }
}

static void golden_close(golden *g)
{
    safetensors_close(g->weights);
    safetensors_close(g->tensors);
    json_free(g->about);
    arena_destroy(g->a);
}

static double limit(const golden *g, const char *key)
{
    const double value = json_real(json_get(json_get(g->about, "tolerance"), key), (double)NAN);
    assert_true(value > 0.0);
    return value;
}

static whole whole_of(golden *g, op_purpose purpose, op_recompute recompute)
{
    op_model *m = NULL;
    const model_options options = {.purpose = purpose,
                                   .compute = DTYPE_F32,
                                   .grad = DTYPE_F32,
                                   .recompute = recompute,
                                   .seq = g->seq,
                                   .documents = g->documents != NULL,
                                   .logits = true};
    OK(model_build(g->a, &g->spec, &options, &m));
    OK(model_hf_check(g->a, g->weights, &g->spec, m));
    const int64_t tokens = g->batch * g->seq;
    float **weights = weights_read(g->a, g->weights, &g->spec, m);
    whole x = whole_make(g->a, m, weights, tokens, g->batch, 1);
    batch_set(&x, "ids", g->ids, tokens);
    batch_set(&x, "labels", g->labels, tokens);
    batch_set(&x, "positions", g->positions, tokens);
    if (g->documents != NULL) batch_set(&x, "documents", g->documents, tokens);
    return x;
}

static void loss_compare(const golden *g, const whole *x)
{
    const step_block *s = kern_interpret_step(x->layers[x->m->layer_count - 1]);
    const double loss = exact_value(&s->device.loss_sum) / (double)s->device.tokens;
    const double want = json_real(json_get(g->about, "loss"), (double)NAN);
    assert_int_equal(s->device.tokens, json_int(json_get(g->about, "tokens_in_loss"), -1));
    if (!(fabs(loss - want) <= limit(g, "loss_absolute"))) {
        fail_msg("%s: loss %.9g, expected %.9g", g->name, loss, want);
    }
}

static void logits_compare(const golden *g, const whole *x)
{
    const int32_t head = x->m->layer_count - 1;
    const tensor_id t = x->m->programs[x->m->layers[head].program]->outputs[0];
    const safetensors_entry *want = safetensors_find(g->tensors, "logits");
    ASSERT(want != NULL);
    const int64_t count = g->batch * g->seq * g->spec.vocab;
    double largest = 0.0, worst = 0.0;
    assert_int_equal(kern_interpret_elements(x->layers[head], t), count);
    for (int64_t i = 0; i < count; i++) {
        const double w = dtype_load(want->type, want->data, i);
        const double off = fabs(kern_interpret_get(x->layers[head], t, i) - w);
        largest = fmax(largest, fabs(w));
        worst = off <= worst ? worst : off; // a NaN stays
    }
    if (!(worst <= limit(g, "logits_relative_to_max") * largest)) {
        fail_msg("%s: logits are off by %g of %g", g->name, worst, largest);
    }
}

// One tensor of the file, which is rows of weight w.
static void grad_compare(const golden *g, const whole *x, int64_t w, const model_hf_tensor *hf,
                         const double *grad, double scale)
{
    char name[256];
    snprintf(name, sizeof(name), "grad.%s", hf->name);
    const safetensors_entry *want = safetensors_find(g->tensors, name);
    ASSERT(want != NULL);
    const int64_t columns = x->m->weights[w].columns, count = hf->rows * columns;
    double largest = 0.0, worst = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / columns, column = i % columns;
        const int64_t at = model_hf_at(hf, columns, row, column);
        const double expected = dtype_load(want->type, want->data, at);
        const double off = fabs(grad[hf->row_begin * columns + i] * scale - expected);
        largest = fmax(largest, fabs(expected));
        worst = off <= worst ? worst : off;
    }
    if (!(worst <= limit(g, "grad_relative_to_max_of_tensor") * fmax(largest, 1e-9))) {
        fail_msg("%s: %s is off by %g of %g", g->name, name, worst, largest);
    }
}

static void grads_compare(const golden *g, whole *x)
{
    double **grads = backward(x);
    const step_block *s = kern_interpret_step(x->layers[x->m->layer_count - 1]);
    const double scale = (double)(g->batch * g->seq) / (double)s->device.tokens;
    loss_compare(g, x); // the head's loss comes with its gradients
    for (int64_t w = 0; w < x->m->weight_count; w++) {
        model_hf_tensor *hf = NULL;
        int64_t count = 0;
        if (x->m->weights[w].frozen) continue; // the correction of a router
        OK(model_hf_tensors(g->a, &g->spec, x->m, w, &hf, &count));
        for (int64_t i = 0; i < count; i++) grad_compare(g, x, w, &hf[i], grads[w], scale);
    }
}

static void meets_reference(void **state)
{
    golden g;
    const char *name = *state;
    golden_open(&g, name);
    whole evaluate = whole_of(&g, PURPOSE_EVALUATE, RECOMPUTE_NONE);
    forward(&evaluate);
    loss_compare(&g, &evaluate);
    logits_compare(&g, &evaluate);
    whole train = whole_of(&g, PURPOSE_TRAIN, RECOMPUTE_NONE);
    forward(&train);
    grads_compare(&g, &train);
    golden_close(&g);
}

static void recomputed_is_equal(void **state)
{
    golden g;
    golden_open(&g, *state);
    double **grads[3];
    whole x = {.a = NULL};
    for (int policy = 0; policy < 3; policy++) {
        x = whole_of(&g, PURPOSE_TRAIN, (op_recompute)policy);
        forward(&x);
        grads[policy] = backward(&x);
    }
    for (int64_t w = 0; w < x.m->weight_count; w++) {
        const size_t bytes = (size_t)(x.m->weights[w].rows * x.m->weights[w].columns) * 8;
        assert_memory_equal(grads[0][w], grads[1][w], bytes);
        assert_memory_equal(grads[0][w], grads[2][w], bytes);
    }
    golden_close(&g);
}

// ---- generation ---------------------------------------------------------------------------------
enum { CACHE_SEQ = 40 };

// One pass over `count` new tokens after `before` cached ones: the id drawn, greedily.
static int64_t draw(golden *g, op_purpose purpose, float **weights, void **caches,
                    const int64_t *ids, int64_t before, int64_t count)
{
    op_model *m = NULL;
    // Dynamic and LongRoPE look at the length so far: what is cached is then turned the wrong way.
    const model_options options = {
        .purpose = purpose, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = before + count};
    OK(model_build(g->a, &g->spec, &options, &m));
    whole x = whole_make(g->a, m, weights, count, 1, CACHE_SEQ);
    for (int32_t l = 0, used = 0; l < m->layer_count; l++) {
        const op_program *p = m->programs[m->layers[l].program];
        for (tensor_id t = 0; t < p->tensor_count; t++) {
            if (p->tensors[t].role == ROLE_CACHE)
                kern_interpret_bind(x.layers[l], t, caches[used++]);
        }
    }
    int64_t positions[CACHE_SEQ];
    for (int64_t i = 0; i < count; i++) positions[i] = before + i;
    const int64_t length = before + count, last = count - 1, zeros[8] = {0};
    batch_set(&x, "ids", ids + before, count);
    batch_set(&x, "positions", positions, count);
    batch_set(&x, "lengths", &length, 1);
    batch_set(&x, "rows", &last, 1);
    batch_set(&x, "params", zeros, 8); // temperature 0: greedy
    batch_set(&x, "draws", zeros, 1);
    forward(&x);
    const int32_t head = m->layer_count - 1;
    const op_program *p = m->programs[m->layers[head].program];
    return (int64_t)kern_interpret_get(x.layers[head], p->outputs[0], 0);
}

static void generates_the_same(void **state)
{
    golden g;
    char path[1100];
    json *root = NULL;
    golden_open(&g, *state);
    snprintf(path, sizeof(path), "%s/generation.json", g.folder);
    if (json_read(host_real(), path, 1 << 20, &root) != ST_OK) { // most cases have none
        golden_close(&g);
        return;
    }
    const json *prompt = json_get(root, "prompt"), *want = json_get(root, "ids");
    int64_t ids[CACHE_SEQ], count = json_count(prompt);
    assert_true(count + json_count(want) <= CACHE_SEQ);
    for (int64_t i = 0; i < count; i++) ids[i] = json_int(json_at(prompt, i), -1);
    op_model *m = NULL;
    const model_options options = {
        .purpose = PURPOSE_PREFILL, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = CACHE_SEQ};
    OK(model_build(g.a, &g.spec, &options, &m));
    float **weights = weights_read(g.a, g.weights, &g.spec, m);
    void *caches[16];
    for (int i = 0; i < COUNT_OF(caches); i++) {
        const int64_t bytes = CACHE_SEQ * g.spec.kv_heads * g.spec.head_dim * 4;
        caches[i] = aligned(g.a, bytes);
        memset(caches[i], 0xFF, (size_t)bytes);
    }
    ids[count] = draw(&g, PURPOSE_PREFILL, weights, caches, ids, 0, count);
    for (int64_t i = 0; i < json_count(want); i++) {
        assert_int_equal(ids[count], json_int(json_at(want, i), -1));
        if (i + 1 == json_count(want)) break;
        const bool again = model_rope_changes(&g.spec, count, count + 1);
        ids[count + 1] = again ? draw(&g, PURPOSE_PREFILL, weights, caches, ids, 0, count + 1)
                               : draw(&g, PURPOSE_DECODE, weights, caches, ids, count, 1);
        count++;
    }
    json_free(root);
    golden_close(&g);
}

// Whether this program trains the model. The folder also has models of architectures that it does not
// know yet, or only plans.
static bool is_trained(arena *a, const char *name)
{
    char local[256], folder[1024];
    decoder_spec spec;
    (void)snprintf(local, sizeof(local), "golden/models/%s", name);
    if (model_spec_from_hf(host_real(), a, test_shared(local, folder), &spec) != ST_OK) {
        if (strstr(error_last()->text, "unknown model type") == NULL)
            return true; // fails in its test
        printf("left out: %s: %s\n", name, error_last()->text);
        error_clear();
        return false;
    }
    const bool is_planned = model_is_planned_only(&spec);
    if (is_planned) printf("left out: %s: its experts or attention are planned only\n", name);
    return !is_planned;
}

// Every folder of golden/models is a case, so TRIREME_SHARED may point to others. By day with sanitizers each is
// looked at in one of the ways.
int main(void)
{
    enum { MOST = 128 };
    static struct CMUnitTest tests[3 * MOST];
    char folder[1024];
    arena *a = NULL;
    file_names cases = {.count = 0};
    size_t count = 0;
    if (arena_create("cases", 0, &a) != ST_OK) return 1;
    test_shared("golden/models", folder);
    if (host_real()->api->path_list(host_real(), a, folder, &cases) != ST_OK) {
        printf("skipped, no reference data: %s\n", error_last()->text);
        arena_destroy(a);
        return 77;
    }
    static const struct {
        const char *what;
        CMUnitTestFunction run;
    } kinds[] = {{"meets reference", meets_reference},
                 {"recomputed is equal", recomputed_is_equal},
                 {"generates the same", generates_the_same}};
    for (int64_t i = 0; i < min_i64(cases.count, MOST); i++) {
        if (!is_trained(a, cases.names[i])) continue;
        for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
            if (kinds[k].run == recomputed_is_equal && i % 4 != 0)
                continue; // slow, and no case's own
            if (part_skips(CASES_PART, i, cases.count, k, COUNT_OF(kinds))) continue;
            char *name = NULL;
            if (arena_format(a, &name, "%s %s", cases.names[i], kinds[k].what) != ST_OK) return 1;
            tests[count++] = (struct CMUnitTest){
                .name = name, .test_func = kinds[k].run, .initial_state = cases.names[i]};
        }
    }
    const int failed = _cmocka_run_group_tests("models", tests, count, NULL, NULL);
    arena_destroy(a);
    return failed;
}
