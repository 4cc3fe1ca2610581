// Runs `check`; check.h describes it. Ranks are threads of this process, each with a job of its
// own; tensors that they hold in pieces are gathered, and each rank compares all of them. Two jobs
// start from the file's weights: one step on `input_ids` for logits, loss and gradients, then the
// ten steps of the trajectory.
//
// The accumulated gradient is that of the sum of token losses times loss_scale / loss_divisor; the
// reference states that of the mean loss, so check multiplies by loss_divisor / (loss_scale x
// tokens), as the optimizer does.
#include "diagnose/check.h"

#include "assemble/prove.h"
#include "diagnose/check_compare.h"
#include "diagnose/check_ranks.h"
#include "op/zigzag.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GOLDEN_LIMIT_BYTES = 1 << 26, MAX_KEYS = 256, NARROW_FACTOR = 4 };

typedef struct checking {
    const host *h;
    arena *a;
    const char *folder;
    comm *all; // NULL: one rank
    int rank;
    json *golden;
    safetensors *tensors;
    const char *steps_prefix; // of the batches of the steps: "traj_" or "step_"
    const char *adapter;      // folder with the adapter that the results are of; NULL: none
    run_config r;
    decoder_spec spec;
    assemble_options options;
    assemble_plans plans;
    train_job job;
    int64_t sequences, seq, steps;
    int32_t *cells; // ids, labels, positions, documents of a step: (sequences, seq) each
    int64_t padded; // positions of a sequence here: seq, or the length that the layout can cut
    int32_t *own;   // positions that this rank takes, padded; NULL: all
    int64_t tokens; // with a label, in the last step
    double loss, grad_norm;
    check_noise noise; // of the losses of single tokens, from the logits
    diagnose_check *out;
} checking;

const char *check_what_name(check_what what)
{
    static const char *const names[CHECK_WHAT_COUNT] = {"logits", "loss",      "grad",
                                                        "losses", "grad_norm", "final"};
    return names[what];
}

// ---- the folder ---------------------------------------------------------------------------------

static status golden_open(checking *k)
{
    char *path = NULL, *tensors = NULL;
    file_info info;
    TRY(path_join(k->a, k->folder, "golden.json", &path));
    TRY(path_join(k->a, k->folder, "golden.safetensors", &tensors));
    TRY(k->h->api->path_info(k->h, k->folder, &info));
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s does not exist", k->folder);
    TRY(k->h->api->path_info(k->h, path, &info));
    if (info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND,
                    "%s holds no reference results (golden.json, golden.safetensors); "
                    "tools/make_golden.py makes them from a Hugging Face folder, and `trireme "
                    "inspect` checks any other",
                    k->folder);
    }
    TRY(json_read(k->h, path, GOLDEN_LIMIT_BYTES, &k->golden));
    TRY(safetensors_open_mapped(k->h, tensors, &k->tensors));
    const safetensors_entry *ids = safetensors_find(k->tensors, "input_ids");
    if (ids == NULL || ids->ndim != 2 || ids->dims[0] < 1 || ids->dims[1] < 1) {
        return fail(ST_DAMAGED, "%s: input_ids is missing or not of shape [B, T]", tensors);
    }
    k->sequences = ids->dims[0];
    k->seq = ids->dims[1];
    k->steps_prefix = "traj_";
    if (safetensors_find(k->tensors, "traj_input_ids") == NULL) k->steps_prefix = "step_";
    char *steps_name = NULL;
    TRY(arena_format(k->a, &steps_name, "%sinput_ids", k->steps_prefix));
    const safetensors_entry *steps = safetensors_find(k->tensors, steps_name);
    if (steps != NULL) {
        if (steps->ndim != 3 || steps->dims[1] != k->sequences || steps->dims[2] != k->seq) {
            return fail(ST_DAMAGED, "%s: %s is not of shape [steps, B, T]", tensors, steps_name);
        }
        k->steps = steps->dims[0];
    }
    return ST_OK;
}

// Reads the optimizer's settings from golden.json as keys of a configuration.
static status keys_of_golden(const checking *k, const char **keys, int64_t *count)
{
    static const struct {
        const char *key, *name;
        double otherwise;
    } numbers[] = {
        {"optimizer.lr", "lr", 1e-3},       {"optimizer.beta1", "beta1", 0.9},
        {"optimizer.beta2", "beta2", 0.95}, {"optimizer.weight_decay", "weight_decay", 0.1},
        {"optimizer.eps", "eps", 1e-8},     {"optimizer.clip", "clip_norm", 1.0},
    };
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"train.seq", k->padded},
                 {"train.global_batch", k->sequences},
                 {"train.steps", max_i64(k->steps, 1)},
                 {"eval.every", 0},
                 {"data.valid", 0}};
    const json *optimizer = json_get(k->golden, "optimizer");
    char *pair = NULL;
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        const double value = json_real(json_get(optimizer, numbers[i].name), numbers[i].otherwise);
        TRY(arena_format(k->a, &pair, "%s=%.17g", numbers[i].key, value));
        keys[(*count)++] = pair;
    }
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        TRY(arena_format(k->a, &pair, "%s=%lld", sizes[i].key, (long long)sizes[i].value));
        keys[(*count)++] = pair;
    }
    TRY(arena_format(k->a, &pair, "model.from=%s", k->folder));
    keys[(*count)++] = pair;
    if (k->adapter != NULL) {
        TRY(arena_format(k->a, &pair, "adapter.from=%s", k->adapter));
        keys[(*count)++] = pair;
    }
    keys[(*count)++] = "data.train=golden.safetensors"; // never opened; a run must name a file
    keys[(*count)++] = "schedule.name=constant";
    keys[(*count)++] = "model.mtp_layers=0"; // the reference does not have these
    return ST_OK;
}

// The value given for a key; 1 if it is not given or not a number.
static int64_t number_given(const char *key, const char *const *given, int64_t count)
{
    int64_t value = 1;
    const size_t length = strlen(key);
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(given[i], key, length) != 0 || given[i][length] != '=') continue;
        if (!text_parse_i64(given[i] + length + 1, &value) || value < 1) value = 1;
    }
    return min_i64(value, 1 << 20);
}

// Pads to whole pieces for layouts that cut sequences, so that more layouts fit a case of any
// length.
static int64_t padded_seq(const checking *k, const char *const *given, int64_t count)
{
    const int64_t cp = max_i64(number_given("layout.cp", given, count),
                               number_given("determinism.cp_shards", given, count));
    int64_t step = cp > 1 ? 2 * cp : 1;
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(given[i], "layout.sp=", 10) == 0) {
            step *= number_given("layout.tp", given, count);
            break;
        }
    }
    return (k->seq + step - 1) / step * step;
}

static bool is_given(const char *key, const char *const *given, int64_t count)
{
    const size_t length = strlen(key);
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(given[i], key, length) == 0 && given[i][length] == '=') return true;
    }
    return false;
}

// Adds what layout.ep needs and is not given: ranks of dp and cp, as many of dp as the case has
// sequences; with tp, rows of their own for its ranks.
static status ranks_of_experts(const checking *k, const char *const *given, int64_t given_count,
                               const char **keys, int64_t *count)
{
    const int64_t ep = number_given("layout.ep", given, given_count);
    const int64_t tp = number_given("layout.tp", given, given_count);
    char *key = NULL;
    int64_t rest = ep;
    if (ep == 1) return ST_OK;
    if (tp > 1) {
        if (!is_given("layout.sp", given, given_count)) keys[(*count)++] = "layout.sp=yes";
        if (!is_given("layout.etp", given, given_count)) keys[(*count)++] = "layout.etp=1";
        if (ep % tp == 0) rest = ep / tp;
    }
    const bool has =
        is_given("layout.dp", given, given_count) || is_given("layout.cp", given, given_count);
    int64_t dp = min_i64(rest, k->sequences);
    if (rest == 1 || has) return ST_OK;
    while (rest % dp != 0 || k->sequences % dp != 0) dp--;
    TRY(arena_format(k->a, &key, "layout.dp=%lld", (long long)dp));
    keys[(*count)++] = key;
    TRY(arena_format(k->a, &key, "layout.cp=%lld", (long long)(rest / dp)));
    keys[(*count)++] = key;
    return ST_OK;
}

static status config_make(checking *k, const char *const *given, int64_t given_count)
{
    const char *keys[MAX_KEYS];
    int64_t count = 0;
    config *c = NULL;
    if (given_count > MAX_KEYS / 2) return fail(ST_USAGE, "more than %d keys", MAX_KEYS / 2);
    const char *all[MAX_KEYS];
    int64_t all_count = 0;
    TRY(ranks_of_experts(k, given, given_count, all, &all_count));
    for (int64_t i = 0; i < given_count; i++) all[all_count++] = given[i];
    k->padded = padded_seq(k, all, all_count);
    TRY(keys_of_golden(k, keys, &count));
    for (int64_t i = 0; i < all_count; i++) keys[count++] = all[i];
    TRY(run_config_load(k->h, k->a, NULL, keys, count, &k->r, &c));
    // The usual initial factor makes a run skip steps, which a trajectory must not.
    if (k->r.train.precision == RUN_FP16 && !config_is_given(c, "precision.loss_scale.initial")) {
        k->r.precision.loss_scale.initial = 128.0;
    }
    k->options = (assemble_options){
        .threads = (int)max_i64(1, assemble_threads(&k->r) / run_config_ranks(&k->r)),
        .device = run_config_device(&k->r),
        .backend = run_config_backend(&k->r),
        .documents = safetensors_find(k->tensors, "doc_ids") != NULL,
        .evaluate = true,
        .logits = true,
        .keep_gradients = true,
        .eval_sequences = k->all == NULL ? k->r.train.micro_batch : k->sequences,
        .mesh = run_config_mesh(&k->r, k->rank),
    };
    return ST_OK;
}

// ---- batches ------------------------------------------------------------------------------------

// Reads row `step` of a tensor of integers, (sequences, seq), into cells. Returns false if it is
// missing.
static status cells_read(const checking *k, const char *name, int64_t step, int32_t *out,
                         bool *is_there)
{
    const safetensors_entry *e = safetensors_find(k->tensors, name);
    const int64_t cells = k->sequences * k->seq;
    *is_there = e != NULL;
    if (e == NULL) return ST_OK;
    const int64_t width = dtype_bytes(e->type);
    if ((e->type != DTYPE_I64 && e->type != DTYPE_I32) || e->bytes < (step + 1) * cells * width) {
        return fail(ST_DAMAGED, "golden.safetensors: %s does not have the expected shape and type",
                    name);
    }
    const char *data = (const char *)e->data + step * cells * width;
    for (int64_t i = 0; i < cells; i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        if (e->type == DTYPE_I64) {
            memcpy(&wide, data + i * width, sizeof(wide));
            narrow = (int32_t)wide;
        } else {
            memcpy(&narrow, data + i * width, sizeof(narrow));
        }
        out[i] = narrow;
    }
    return ST_OK;
}

// Positions count from 0 in each sequence and in each document of it.
static void positions_make(const checking *k, const int32_t *documents, int32_t *positions)
{
    for (int64_t i = 0; i < k->sequences * k->seq; i++) {
        const bool begins = i % k->seq == 0 || documents[i] != documents[i - 1];
        positions[i] = begins ? 0 : positions[i - 1] + 1;
    }
}

// prefix: "", or that of the steps.
static status batch_read(checking *k, const char *prefix, int64_t step)
{
    static const char *const names[] = {"input_ids", "labels", "position_ids", "doc_ids"};
    const int64_t cells = k->sequences * k->seq;
    bool is_there[4];
    memset(k->cells, 0, (size_t)(4 * cells) * sizeof(int32_t));
    for (int i = 0; i < 4; i++) {
        char *name = NULL;
        TRY(arena_format(k->a, &name, "%s%s", prefix, names[i]));
        TRY(cells_read(k, name, step, k->cells + i * cells, &is_there[i]));
        if (i < 2 && !is_there[i]) {
            return fail(ST_DAMAGED, "golden.safetensors has no tensor %s", name);
        }
    }
    if (!is_there[2]) positions_make(k, k->cells + 3 * cells, k->cells + 2 * cells);
    const int32_t ignored = (int32_t)json_int(json_get(k->golden, "ignored_label"), -100);
    for (int64_t i = cells; i < 2 * cells; i++) {
        if (k->cells[i] == ignored) k->cells[i] = -1;
    }
    return ST_OK;
}

// Position in the sequence of a row of rank `at` of cp.
static int64_t position_of(const checking *k, int64_t at, int64_t row)
{
    const int64_t cp_size = k->r.layout.cp, seq = k->padded / cp_size;
    return zigzag_position(cp_size, run_config_cp_turns(&k->r), at, seq, row % seq);
}

// Positions beyond the end of a sequence hold tokens of a separate document without labels.
static int32_t cell_at(const checking *k, int tensor, int64_t sequence, int64_t position)
{
    const int32_t *row = k->cells + (tensor * k->sequences + sequence) * k->seq;
    if (position < k->seq) return row[position];
    if (tensor == 3) return row[k->seq - 1] + 1;
    return tensor == 1 ? -1 : 0;
}

// This rank's positions of a tensor of the batch; attention needs the documents of all positions.
static const int32_t *cells_take(const checking *k, int tensor, int64_t first, int64_t count,
                                 int64_t *taken)
{
    const int64_t seq = tensor == 3 ? k->padded : k->padded / k->r.layout.cp;
    *taken = count * seq;
    if (k->own == NULL) return k->cells + (tensor * k->sequences + first) * k->seq;
    int32_t *own = k->own + tensor * k->sequences * k->padded;
    for (int64_t i = 0; i < *taken; i++) {
        const int64_t at = k->options.mesh.at[AXIS_CP];
        const int64_t position = tensor == 3 ? i % seq : position_of(k, at, i);
        own[i] = cell_at(k, tensor, first + i / seq, position);
    }
    return own;
}

// This rank's input of the step that begins with sequence `first` of the cells.
static exec_input input_of(const checking *k, const plan *p, int64_t step, int64_t first)
{
    static const char *const names[] = {"ids", "labels", "positions", "documents"};
    exec_input input = {.settings = train_step_settings(&k->r), .batch_count = 4};
    input.host = (step_host){.step = step,
                             .seed = (uint64_t)k->r.train.seed,
                             .lr = k->r.optimizer.lr,
                             .sequences = p->sequences};
    for (int i = 0; i < 4; i++) {
        int64_t count = 0;
        const int32_t *rows = cells_take(k, i, first + p->first_sequence, p->own_sequences, &count);
        input.batch[i] = (exec_batch){names[i], rows, count * (int64_t)sizeof(int32_t)};
    }
    return input;
}

// ---- steps --------------------------------------------------------------------------------------

// Runs a plan and takes its results.
static status plan_run(checking *k, const plan *p, const exec_input *input)
{
    step_device *d = malloc(sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "no memory for a step's results");
    int64_t number = 0;
    bool any = false;
    status st = exec_begin(k->job.e, p, input);
    if (st == ST_OK) st = exec_finish(k->job.e);
    if (st == ST_OK) st = exec_results(k->job.e, d, &number, &any);
    if (st == ST_OK) {
        ASSERT(any && number == input->host.step);
        k->tokens = d->tokens;
        k->loss = d->loss;
        k->grad_norm = d->grad_norm;
    }
    free(d);
    return st;
}

static status step_run(checking *k, int64_t step)
{
    const plan *p = assemble_plan_of(&k->plans, k->sequences, false);
    const exec_input input = input_of(k, p, step, 0);
    return plan_run(k, p, &input);
}

static void item_put(checking *k, check_what what, double error, const char *where)
{
    check_item *item = &k->out->items[what];
    if (!(error <= (double)INFINITY)) error = (double)INFINITY; // NaN
    if (item->is_there && error <= item->error) return;
    item->is_there = true;
    item->error = error;
    item->where = where;
}

// The logits of an evaluation step that a rank holds: none if columns is 0.
typedef struct logits_piece {
    int64_t first, rows, column, columns;
    int64_t at; // of cp
} logits_piece;

static logits_piece logits_here(const checking *k, const op_tensor *t)
{
    const plan *p = k->plans.eval;
    const int64_t tp_size = k->r.layout.tp, at = k->options.mesh.at[AXIS_TP], all = k->spec.vocab;
    if (p->outputs[0] < 0) return (logits_piece){0};
    const int64_t columns = t->dims[1].scale; // as op_model_partition cuts them, or all
    return (logits_piece){.first = p->first_sequence,
                          .rows = p->own_sequences * p->seq,
                          .at = k->options.mesh.at[AXIS_CP],
                          .column = columns < all ? all * at / tp_size : 0,
                          .columns = columns};
}

// Gathers the logits of all ranks on every rank: (sequences, seq, vocab).
static status logits_gather(checking *k, const op_tensor *t, float *piece, float *out)
{
    const ckpt_state *state = &k->job.state;
    const int ranks = k->all != NULL ? comm_ranks(k->all) : 1;
    for (int r = 0; r < ranks; r++) {
        logits_piece l = logits_here(k, t);
        if (k->all != NULL) TRY(state->share(state->ranks, r, &l, (int64_t)sizeof(l)));
        const int64_t bytes = l.rows * l.columns * (int64_t)sizeof(float);
        if (l.columns == 0) continue;
        const plan *p = k->plans.eval;
        if (r == k->rank) TRY(exec_read_transient(k->job.e, p, p->outputs[0], piece, bytes));
        if (k->all != NULL) TRY(state->share(state->ranks, r, piece, bytes));
        for (int64_t i = 0; i < l.rows; i++) {
            const int64_t each = k->padded / k->r.layout.cp, position = position_of(k, l.at, i);
            const int64_t row = (l.first + i / each) * k->seq + position;
            if (position >= k->seq) continue;
            memcpy(out + row * k->spec.vocab + l.column, piece + i * l.columns,
                   (size_t)l.columns * sizeof(float));
        }
    }
    return ST_OK;
}

static status logits_compare(checking *k)
{
    const safetensors_entry *e = safetensors_find(k->tensors, "logits");
    const plan *p = k->plans.eval;
    const op_layer *head = &p->model->layers[p->model->layer_count - 1];
    const op_program *program = p->model->programs[head->program];
    const op_tensor *t = &program->tensors[program->outputs[0]];
    const int64_t cells = p->sequences * k->seq * k->spec.vocab;
    const int64_t bytes = cells * (int64_t)sizeof(float), all = bytes / k->seq * k->padded;
    if (e == NULL) return ST_OK;
    if (e->type != DTYPE_F32 || e->bytes != bytes / p->sequences * k->sequences) {
        return fail(ST_DAMAGED, "golden.safetensors: logits are not fp32 of shape [B, T, vocab]");
    }
    float *got = malloc((size_t)(bytes + all));
    if (got == NULL) return fail(ST_NO_MEMORY, "no memory for the logits");
    check_relative sum = {0};
    status st = ST_OK;
    for (int64_t first = 0; first < k->sequences; first += p->sequences) {
        const exec_input input = input_of(k, p, 1, first);
        TRY_TO(free_logits, plan_run(k, p, &input));
        TRY_TO(free_logits, logits_gather(k, t, got + cells, got));
        const char *want = (const char *)e->data + first * k->seq * k->spec.vocab * 4;
        check_relative_add(&sum, got, want, cells);
        const int32_t *labels = k->cells + (k->sequences + first) * k->seq;
        check_noise_add(&k->noise, got, want, labels, p->sequences * k->seq, k->spec.vocab);
    }
    item_put(k, CHECK_LOGITS, check_relative_value(&sum), NULL);
free_logits:
    free(got);
    return st;
}

static status gradients_compare(checking *k)
{
    const double scale = k->r.train.precision == RUN_FP16 ? k->r.precision.loss_scale.initial : 1.0;
    const plan *p = assemble_plan_of(&k->plans, k->sequences, false);
    const check_source source = {.a = k->a,
                                 .state = &k->job.state,
                                 .p = p,
                                 .spec = &k->spec,
                                 .golden = k->tensors,
                                 .factor = p->loss_divisor / (scale * (double)k->tokens)};
    TRY(check_gradients_compare(&source, &k->out->gradients, &k->out->gradient_count));
    for (int64_t i = 0; i < k->out->gradient_count; i++) {
        item_put(k, CHECK_GRAD, k->out->gradients[i].error, k->out->gradients[i].name);
    }
    return ST_OK;
}

static status one_step(checking *k)
{
    TRY(batch_read(k, "", 0));
    TRY(logits_compare(k));
    TRY(step_run(k, 1));
    const json *loss = json_get(k->golden, "loss");
    if (loss != NULL) item_put(k, CHECK_LOSS, fabs(k->loss - json_real(loss, (double)NAN)), NULL);
    return gradients_compare(k);
}

// Compares the weights after the last step with the tensors whose names begin with `prefix`.
static status finals_compare(checking *k, const safetensors *set, const char *prefix)
{
    for (int64_t i = 0; i < safetensors_count(set); i++) {
        const safetensors_entry *e = safetensors_at(set, i);
        double error = 0.0;
        char *name = NULL;
        if (strncmp(e->name, prefix, strlen(prefix)) != 0) continue;
        // A copy, because the set is closed before the name is printed.
        TRY(arena_strdup(k->a, e->name + strlen(prefix), &name));
        TRY(check_final_compare(k->a, &k->job.state, &k->spec, name, e, &error));
        item_put(k, CHECK_FINAL, error, name);
    }
    return ST_OK;
}

// The adapter after the last step, if it is there, is in the folder `adapter_final`.
static status final_adapter_compare(checking *k)
{
    char *path = NULL;
    file_info info;
    safetensors *set = NULL;
    TRY(arena_format(k->a, &path, "%s/adapter_final/adapter_model.safetensors", k->folder));
    TRY(k->h->api->path_info(k->h, path, &info));
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    TRY(safetensors_open_mapped(k->h, path, &set));
    const status st = finals_compare(k, set, "");
    safetensors_close(set);
    return st;
}

static status trajectory(checking *k)
{
    const json *optimizer = json_get(k->golden, "optimizer");
    const json *losses = json_get(optimizer, "losses"), *norms = json_get(optimizer, "grad_norm");
    for (int64_t s = 0; s < k->steps; s++) {
        char *where = NULL;
        TRY(batch_read(k, k->steps_prefix, s));
        TRY(step_run(k, s + 1));
        TRY(arena_format(k->a, &where, "step %lld", (long long)s + 1));
        const double loss = json_real(json_at(losses, s), (double)NAN);
        const double norm = json_real(json_at(norms, s), (double)NAN);
        item_put(k, CHECK_LOSSES, fabs(k->loss - loss), where);
        item_put(k, CHECK_GRAD_NORM, fabs(k->grad_norm - norm) / fabs(norm), where);
    }
    TRY(finals_compare(k, k->tensors, "final."));
    return k->adapter != NULL ? final_adapter_compare(k) : ST_OK;
}

// Runs `work` with a job from the file's weights, with all other state as at the beginning.
static status with_job(checking *k, status (*work)(checking *))
{
    const train_ranks ranks = {.all = k->all, .hosts = k->all != NULL ? comm_world(k->all) : NULL};
    TRY(train_job_create(k->h, k->a, &k->plans, &k->options, &ranks, NULL, &k->job));
    status st = train_job_weights(&k->job, k->a);
    if (st == ST_OK) st = work(k);
    if (st == ST_OK && k->all != NULL) st = comm_barrier(comm_world(k->all), __func__);
    train_job_destroy(&k->job); // peers access its memory
    return st;
}

static status limits_put(const checking *k)
{
    static const struct {
        const char *name;
        double otherwise; // the limit for fp32 that ../golden suggests
    } names[CHECK_WHAT_COUNT] = {
        [CHECK_LOGITS] = {"logits_relative_to_max", 5e-5},
        [CHECK_LOSS] = {"loss_absolute", 2e-5},
        [CHECK_GRAD] = {"grad_relative_to_max_of_tensor", 1e-4},
        [CHECK_LOSSES] = {"losses_absolute", 2e-4},
        [CHECK_GRAD_NORM] = {"grad_norm_relative", 5e-4},
        [CHECK_FINAL] = {"final_rms", 2e-5},
    };
    const json *limits = json_get(k->golden, "tolerance");
    for (int i = 0; i < CHECK_WHAT_COUNT; i++) {
        k->out->items[i].limit = json_real(json_get(limits, names[i].name), names[i].otherwise);
        k->out->items[i].ref_error = (double)NAN;
    }
    return ST_OK;
}

static status check_once(checking *k)
{
    TRY(assemble_rank(k->a, &k->r, &k->spec, &k->options, &k->plans));
    TRY(assemble_fit_check(&k->r, &k->spec, &k->options, &k->plans,
                           assemble_memory_limit(k->h, &k->r, run_config_ranks(&k->r))));
    TRY(with_job(k, one_step));
    if (k->steps > 0) TRY(with_job(k, trajectory));
    return limits_put(k);
}

// The worst of what the reference kernels have become the limits of `with`.
static void limits_widen(const checking *with, const diagnose_check *ref)
{
    for (int i = 0; i < CHECK_WHAT_COUNT; i++) {
        check_item *item = &with->out->items[i];
        const double error = ref->items[i].error;
        item->ref_error = isnan(item->ref_error) ? error : fmax(item->ref_error, error);
        item->limit = fmax(item->limit, NARROW_FACTOR * error);
    }
}

// The same with the reference kernels: the cost of these roundings without other errors.
static status ref_compare(const checking *with)
{
    // Which expert a token goes to changes by leaps: a rounding decides where two are nearly equal,
    // so one course is a sample. A learning rate with errors of bf16's size gives others.
    static const double rates[] = {1.0, 1.0 - 0x1p-8, 1.0 + 0x1p-8, 1.0 - 0x1p-7, 1.0 + 0x1p-7};
    const int courses = with->spec.experts.count > 0 ? (int)COUNT_OF(rates) : 1;
    for (int i = 0; i < courses; i++) {
        diagnose_check *ref = NULL;
        checking *k = NULL;
        TRY(arena_new(with->a, 1, &ref));
        TRY(arena_new(with->a, 1, &k));
        *k = *with;
        k->options.backend = "ref";
        k->options.device = "cpu";
        k->out = ref;
        k->noise = (check_noise){0};
        k->r.optimizer.lr *= rates[i];
        TRY(check_once(k));
        limits_widen(with, ref);
        // A mean may be right by chance: its error is at least what those of its terms suggest.
        check_item *loss = &with->out->items[CHECK_LOSS];
        loss->limit = fmax(loss->limit, NARROW_FACTOR * check_noise_of_mean(&k->noise));
    }
    return ST_OK;
}

// The results may be those of a model with an adapter: in the folder `adapter`, as PEFT writes it.
static status adapter_find(checking *k)
{
    char *folder = NULL;
    bool is_there = false;
    TRY(path_join(k->a, k->folder, "adapter", &folder));
    TRY(model_adapter_is_there(k->h, k->a, folder, &is_there));
    k->adapter = is_there ? folder : NULL;
    return ST_OK;
}

static status spec_make(checking *k, const char *const *keys, int64_t key_count)
{
    TRY(golden_open(k));
    TRY(adapter_find(k));
    TRY(config_make(k, keys, key_count));
    TRY(model_spec_from_config(k->h, k->a, &k->r, &k->spec));
    TRY(assemble_layout_check(&k->r, &k->spec));
    // The reference computes without dropout, whatever the model's config.json says about training.
    k->spec.dropout_embedding = k->spec.dropout_attention = k->spec.dropout_residual = 0.0f;
    return ST_OK;
}

static status check_all(checking *k, const char *const *keys, int64_t key_count)
{
    TRY(spec_make(k, keys, key_count));
    TRY(arena_new(k->a, 4 * k->sequences * k->seq, &k->cells));
    if (k->r.layout.cp > 1 || k->padded > k->seq) {
        TRY(arena_new(k->a, 4 * k->sequences * k->padded, &k->own));
    }
    TRY(check_once(k));
    k->out->is_narrow = run_config_types(&k->r).compute != DTYPE_F32;
    k->out->config = &k->r;
    k->out->arch = k->spec.arch;
    k->out->parameters = k->plans.whole->parameters;
    k->out->sequences = k->sequences;
    k->out->seq = k->seq;
    return k->out->is_narrow ? ref_compare(k) : ST_OK;
}

typedef struct check_order {
    const host *h;
    const char *folder;
    const char *const *keys;
    int64_t key_count;
    diagnose_check *out;
    int64_t ranks; // requested by the keys; counted first
} check_order;

static status rank_check(void *context, comm *all, int rank, arena *a)
{
    const check_order *o = context;
    checking *k = NULL;
    TRY(arena_new(a, 1, &k));
    TRY(arena_new(a, 1, &k->out));
    *k =
        (checking){.h = o->h, .a = a, .folder = o->folder, .all = all, .rank = rank, .out = k->out};
    if (rank == 0) k->out = o->out; // all ranks compare the same
    const status st = check_all(k, o->keys, o->key_count);
    safetensors_close(k->tensors);
    json_free(k->golden);
    return st;
}

enum { RANKS_MAX = 64 };

// With several ranks the plans are proved first, as in a run.
static status ranks_count(check_order *o, arena *a)
{
    checking *k = NULL;
    assemble_proved verified;
    TRY(arena_new(a, 1, &k));
    *k = (checking){.h = o->h, .a = a, .folder = o->folder};
    status st = spec_make(k, o->keys, o->key_count);
    o->ranks = st == ST_OK ? run_config_ranks(&k->r) : 1;
    if (st == ST_OK && o->ranks > RANKS_MAX) {
        st = fail(ST_UNSUPPORTED, "the layout has %lld ranks, check runs at most %d",
                  (long long)o->ranks, RANKS_MAX);
    }
    k->options.eval_sequences = k->sequences;
    if (st == ST_OK && o->ranks > 1) {
        st = assemble_prove(o->h, a, &k->r, &k->spec, &k->options, &verified);
    }
    safetensors_close(k->tensors);
    json_free(k->golden);
    return st;
}

status diagnose_check_run(const host *h, arena *a, const char *folder, const char *const *keys,
                          int64_t key_count, diagnose_check *out)
{
    check_order o = {.h = h, .folder = folder, .keys = keys, .key_count = key_count, .out = out};
    memset(out, 0, sizeof(*out));
    TRY(ranks_count(&o, a));
    if (o.ranks == 1) return rank_check(&o, NULL, 0, a);
    return check_ranks_run(h, a, (int)o.ranks, rank_check, &o);
}
