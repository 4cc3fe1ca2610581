// Objectives that compare answers: log-probabilities of the reference model, and the measures of
// steps.
//
// The reference model is the one that the run begins with, or another folder; with an adapter, the
// base model without it. Before the run's own weights are loaded, the job loads the reference's and
// evaluates every sample once with the evaluation plan, so its log-probabilities come from the
// kernels, types and layout of training:
//
//   load reference -> evaluation plan over all rows -> sum of each document -> all ranks -> file
//
// The file is in the cache folder. Its name is a hash of all that determines the numbers, so a
// resumed run and a second run read it.
#include "op/objective.h"
#include "op/zigzag.h"
#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool session_evaluates(const session *s)
{
    return s->plans.eval != NULL && s->r->eval.every > 0 && run_config_has_valid(s->r);
}

static bool has_first_tp(const session *s)
{
    return s->options.mesh.at[AXIS_TP] == 0;
}

// Adds the values of all ranks. Collective.
static status sum_all(const session *s, double *values, int64_t count)
{
    if (s->ranks.hosts == NULL) return ST_OK;
    return comm_all_reduce(s->ranks.hosts, values, count, DTYPE_F64, REDUCTION_SUM, "measures",
                           __func__);
}

// ---- the reference ------------------------------------------------------------------------------

static const char *reference_folder(const session *s)
{
    const char *given = s->r->objective.reference;
    return strcmp(given, "auto") == 0 ? s->r->model.from : given;
}

static status folder_hash(session *s, const char *path, hash_stream *hash)
{
    file_names names;
    TRY(s->h->api->path_list(s->h, s->a, path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *entry = NULL;
        file_info info;
        TRY(path_join(s->a, path, names.names[i], &entry));
        TRY(s->h->api->path_info(s->h, entry, &info));
        hash_add(hash, names.names[i], (int64_t)strlen(names.names[i]) + 1);
        hash_add(hash, &info.bytes, sizeof(info.bytes));
        hash_add(hash, &info.modified_ns, sizeof(info.modified_ns));
    }
    return ST_OK;
}

static status reference_hash(session *s, hash128 *out)
{
    const char *folder = reference_folder(s);
    const hash128 data = train_loader_id(s->loader);
    // DoRA divides by lengths also where its terms are zero, which rounds.
    const int64_t facts[] = {1, s->r->train.seed, s->r->train.precision, s->r->determinism.mode,
                             s->spec.adapter.dora ? 1 : 0};
    text spec = {.a = s->a};
    TRY(model_spec_print_json(&s->spec, &spec));
    hash_stream *hash = hash_begin();
    if (hash == NULL) return fail(ST_NO_MEMORY, "no memory for the reference's hash");
    hash_add(hash, &data, sizeof(data));
    hash_add(hash, facts, sizeof(facts));
    hash_add(hash, spec.bytes, spec.length);
    hash_add(hash, s->numerics, (int64_t)strlen(s->numerics));
    const status st = folder != NULL ? folder_hash(s, folder, hash) : ST_OK;
    *out = hash_end(hash);
    return st;
}

// The sums of the documents of one sequence. loss: of its tokens, as cp gathers them.
static void row_sum(const session *s, data_split split, int64_t n, const float *loss, double *to)
{
    const data_dataset *d = train_loader_dataset(s->loader);
    const int64_t seq = s->r->train.seq, cp = s->r->layout.cp, turns = run_config_cp_turns(s->r);
    int64_t run = 0;
    data_pair *pairs = s->objective.pairs;
    const int64_t count = data_dataset_pairs(d, split, n, pairs);
    for (int64_t i = 0; i < count; i++) {
        const int64_t end = i + 1 < count ? pairs[i + 1].first : seq;
        const int64_t bounds[] = {pairs[i].first, pairs[i].second, end};
        for (int k = 0; k < 2; k++) {
            double sum = 0.0;
            for (int64_t t = bounds[k]; t < bounds[k + 1]; t++) {
                sum -= (double)loss[zigzag_row(cp, turns, seq, t, &run)];
            }
            to[2 * pairs[i].sample + k] = sum;
        }
    }
}

// Each rank writes the samples of its sequences; ranks that share them have equal numbers, and one
// of them counts. Sequences behind the last one are the first ones again.
static status split_pass(session *s, data_split split, const train_watch *w, double *to)
{
    const data_dataset *d = train_loader_dataset(s->loader);
    const int64_t rows = data_dataset_sequences(d, split), count = s->plans.eval->sequences;
    const int64_t per = s->plans.eval->micro_batch, seq = s->r->train.seq;
    for (int64_t first = 0; first < rows; first += count) {
        int64_t own = first, own_count = count, step = 0;
        bool any = false;
        exec_input input = {.settings = train_step_settings(s->r)};
        input.host.step = 1;
        input.host.sequences = count;
        session_progress(s, "computing the reference's log-probabilities", false);
        int asked = session_should_stop(s) ? 1 : 0;
        TRY(session_agree(s, &asked, "stop"));
        if (asked > 0) return fail(ST_STOPPED, "asked to stop before the first step");
        TRY(train_loader_rows(s->loader, split, first, count, &input));
        TRY(exec_begin(s->job.e, s->plans.eval, &input));
        TRY(exec_finish(s->job.e));
        TRY(exec_results(s->job.e, s->results, &step, &any)); // so that no step gets them
        train_loader_own(s->loader, &own, &own_count);
        const bool counts = has_first_tp(s) && s->options.mesh.at[AXIS_CP] == 0;
        for (int64_t i = 0; i < w->count * per && counts; i++) {
            if (own + i < rows) row_sum(s, split, own + i, w->data + i * seq, to);
        }
    }
    return ST_OK;
}

static status reference_compute(session *s, double *values, int64_t train_count, int64_t all)
{
    train_watch w;
    const char *const *entries = NULL;
    int64_t count = 0;
    TRY(train_watch_make(s->a, s->plans.eval, OP_OBJECTIVE, 0, &w));
    session_process_forget(s); // the weights of the reference replace those that were kept
    TRY(train_job_weights_of(&s->job, s->a, reference_folder(s)));
    if (train_job_has_base(&s->job)) {
        TRY(train_job_adapter_off(&s->job, s->a, reference_folder(s)));
    }
    train_watch_set(s->job.e, &w);
    memset(values, 0, (size_t)(2 * all) * sizeof(double));
    // The file is of all samples: another list of data.exclude shows others.
    train_loader_excluded(s->loader, &entries, &count);
    TRY(train_loader_exclude(s->loader, NULL, 0));
    TRY(split_pass(s, DATA_TRAIN, &w, values));
    if (all > train_count) TRY(split_pass(s, DATA_VALID, &w, values + 2 * train_count));
    exec_probes_set(s->job.e, s->plans.eval, NULL, 0);
    TRY(train_loader_exclude(s->loader, entries, count));
    return sum_all(s, values, 2 * all);
}

// The file is the numbers, then their hash.
static status reference_read(session *s, const char *path, double *values, int64_t bytes, bool *any)
{
    file_info info;
    char *data = NULL;
    int64_t count = 0;
    *any = false;
    TRY(s->h->api->path_info(s->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(s->h, s->a, path, bytes + 16, &data, &count));
    const hash128 sum = hash128_of(data, min_i64(bytes, count));
    if (count != bytes + 16 || memcmp(data + bytes, &sum, 16) != 0) {
        session_say(s, LOG_WARN, "%s is damaged and is made again", path_base_name(path));
        return ST_OK;
    }
    memcpy(values, data, (size_t)bytes);
    *any = true;
    return ST_OK;
}

static status reference_write(const session *s, const char *path, double *values, int64_t bytes)
{
    const hash128 sum = hash128_of(values, bytes);
    memcpy((char *)values + bytes, &sum, sizeof(sum));
    return host_write_all(s->h, path, values, bytes + 16);
}

static status reference_open(session *s)
{
    const data_dataset *d = train_loader_dataset(s->loader);
    const int64_t train_count = data_dataset_sample_count(d, DATA_TRAIN);
    const int64_t all = train_count + data_dataset_sample_count(d, DATA_VALID);
    const int64_t bytes = 2 * all * (int64_t)sizeof(double);
    hash128 id;
    char name[33], *path = NULL;
    double *values = NULL;
    int found = 0;
    bool any = false;
    TRY(arena_new(s->a, 2 * all + 2, &values));
    TRY(reference_hash(s, &id));
    (void)hash128_text(id, name);
    TRY(arena_format(s->a, &path, "%s/reference-%s.bin", s->folder.cache, name));
    TRY(reference_read(s, path, values, bytes, &any));
    found = any ? -1 : 0; // the largest: 0 if a rank lacks it
    TRY(session_agree(s, &found, "reference"));
    if (found == 0) {
        if (session_is_first(s)) {
            session_say(s, LOG_INFO, "log-probabilities of %lld answers under the reference model",
                        (long long)(2 * all));
        }
        TRY(reference_compute(s, values, train_count, all));
        if (session_is_first(s)) TRY(reference_write(s, path, values, bytes));
    }
    train_loader_reference(s->loader, values, train_count);
    return ST_OK;
}

// ---- measures -----------------------------------------------------------------------------------

status session_objective_open(session *s)
{
    const int64_t seq = s->r->train.seq;
    if (run_config_objective(s->r).kind == OBJECTIVE_NONE) return ST_OK;
    s->objective.is_watched = true;
    TRY(arena_new(s->a, seq, &s->objective.pairs));
    if (run_config_has_reference(s->r)) TRY(reference_open(s));
    TRY(arena_new(s->a, s->plans.count, &s->objective.watches));
    for (int64_t i = 0; i < s->plans.count; i++) {
        train_watch *w = &s->objective.watches[i];
        if (s->plans.all[i]->purpose > PURPOSE_EVALUATE) continue; // it has no loss
        TRY(train_watch_make(s->a, s->plans.all[i], OP_OBJECTIVE, OP_MAX_IN + 2, w));
        train_watch_set(s->job.e, w);
    }
    return ST_OK;
}

status session_objective_take(session *s, const plan *p, double sums[MEASURE_COLUMNS])
{
    if (!s->objective.is_watched) return ST_OK;
    const train_watch *w = s->objective.watches;
    while (w->p != p) w++;
    double own[MEASURE_COLUMNS] = {0.0};
    for (int64_t i = 0; i < w->count * w->values && has_first_tp(s); i++) {
        own[i % MEASURE_COLUMNS] += (double)w->data[i];
    }
    TRY(sum_all(s, own, MEASURE_COLUMNS));
    for (int i = 0; i < MEASURE_COLUMNS; i++) sums[i] += own[i];
    return ST_OK;
}

static void measure_add(obs_record *r, const char *name, double value, bool on_line)
{
    ASSERT(r->measure_count < OBS_MEASURES);
    r->measures[r->measure_count++] = (obs_measure){name, value, on_line};
}

void session_objective_record(const session *s, const double sums[MEASURE_COLUMNS], bool valid,
                              obs_record *record)
{
    static const char *const names[2][4] = {
        {"reward_first", "reward_second", "reward_margin", "reward_accuracy"},
        {"val_reward_first", "val_reward_second", "val_reward_margin", "val_reward_accuracy"}};
    const op_objective_kind kind = run_objective_at(s->r->train.objective)->kind;
    const double count = sums[MEASURE_COUNT], wanted = sums[MEASURE_CORRECT];
    if (!s->objective.is_watched || count == 0.0) return;
    if (kind == OBJECTIVE_GRPO) {
        if (s->r->objective.kl > 0.0) {
            measure_add(record, valid ? "val_kl" : "kl", sums[MEASURE_FIRST] / count, true);
        }
        measure_add(record, valid ? "val_clipped" : "clipped", sums[MEASURE_SECOND] / count, true);
        measure_add(record, valid ? "val_ratio_gap" : "ratio_gap", wanted / count, false);
        return;
    }
    const bool is_kto = kind == OBJECTIVE_KTO;
    const double first = sums[MEASURE_FIRST] / (is_kto ? wanted : count);
    const double second = sums[MEASURE_SECOND] / (is_kto ? count - wanted : count);
    measure_add(record, names[valid][0], first, false);
    measure_add(record, names[valid][1], second, false);
    measure_add(record, names[valid][2], first - second, true);
    if (!is_kto) measure_add(record, names[valid][3], wanted / count, true);
}
