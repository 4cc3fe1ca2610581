// Batches of steps from the data module: a thread fills the rows of the next step while the current
// step runs.
#include "train/loader.h"

#include "checkpoint/checkpoint.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "op/zigzag.h"
#include "train/excluded.h"

#include <stdio.h>
#include <string.h>

enum { VALID_TEXT_BYTES = 64 };

struct train_loader {
    const host *h;
    arena *a;
    const run_config *r;
    plan_mesh mesh;
    data_tokenizer *tokenizer;
    data_dataset *dataset;
    data_loader *loader;
    data_prompts *prompts; // in place of the dataset; NULL: none
    const char *const *excluded;
    int64_t excluded_count, excluded_found;
    int64_t first_step, first_sequence; // the data loader's start
    data_rows valid;                    // (valid_count, seq)
    int64_t valid_count;
    // Objectives that compare answers have:
    const double *reference; // (sample, 2), training first; NULL: all 0
    int64_t train_samples;
    data_pair *pairs; // of a sequence
    float *given;     // (given_count, seq, GIVEN_COLUMNS)
    int64_t given_count;
    double *numbers; // (3, seq)
    int32_t *cut;    // with layout.cp: this rank's positions of ids, labels, positions, next
    int64_t cut_count;
    bool has_next; // a layer of the model predicts the token after the next
    int32_t *next; // (2, next_count, seq): the tokens after ids, the labels after theirs
    int64_t next_count;
    status (*heard)(void *context, log_level level, const char *line);
    void *heard_context;
};

static status tokenizer_open(train_loader *l)
{
    const char *path = l->r->data.tokenizer, *from = l->r->model.from;
    if (path != NULL && strcmp(path, "auto") != 0) {
        return data_tokenizer_open(l->h, l->a, path, &l->tokenizer);
    }
    // Takes the tokenizer in model.from if there is one, else that of a corpus, else bytes.
    if (from != NULL) {
        const status st = data_tokenizer_open(l->h, l->a, from, &l->tokenizer);
        if (st != ST_NOT_FOUND) return st;
        error_clear();
    }
    const char *of_corpus = NULL;
    if (l->r->data.train.count > 0) {
        TRY(data_corpus_tokenizer(l->h, l->a, l->r->data.train.items[0], &of_corpus));
    }
    return data_tokenizer_open(l->h, l->a, of_corpus, &l->tokenizer);
}

// The tokenizer and config.json of a checkpoint to begin from are checked before they are used; its
// tensors are when they are loaded.
static status origin_check(const train_loader *l)
{
    bool is_checkpoint = false;
    if (l->r->model.from == NULL) return ST_OK;
    TRY(ckpt_folder_is(l->h, l->a, l->r->model.from, &is_checkpoint));
    return is_checkpoint ? ckpt_extras_verify(l->h, l->r->model.from) : ST_OK;
}

status train_loader_open(const host *h, arena *a, const run_config *r, train_loader **out)
{
    TRY(arena_new(a, 1, out));
    train_loader *l = *out;
    l->h = h;
    l->a = a;
    l->r = r;
    TRY(origin_check(l));
    TRY(tokenizer_open(l));
    const bool has_special = r->data.special_tokens == RUN_SPECIAL_TOKENS;
    data_tokenizer_set_flags(l->tokenizer, has_special ? DATA_ENCODE_SPECIAL : 0);
    return ST_OK;
}

int64_t train_loader_vocab(const train_loader *l)
{
    return data_tokenizer_vocab_size(l->tokenizer);
}

status train_loader_model(train_loader *l, run_config *r, decoder_spec *out)
{
    const int64_t needed = train_loader_vocab(l);
    TRY(model_spec_from_config(l->h, l->a, r, out));
    if (out->vocab < needed && r->model.vocab == 0 && r->model.from == NULL) {
        r->model.vocab = needed;
        TRY(model_spec_from_config(l->h, l->a, r, out));
    }
    l->has_next = out->next_layers > 0;
    if (out->vocab >= needed) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "the model's vocabulary is %lld, less than the tokenizer's %lld; give another "
                "model.vocab or data.tokenizer",
                (long long)out->vocab, (long long)needed);
}

const char *train_loader_tokenizer(const train_loader *l)
{
    return data_tokenizer_name(l->tokenizer);
}

static status progress_report(void *context, const char *path, int64_t done, int64_t all)
{
    const train_loader *l = context;
    char line[512];
    if (l->heard == NULL) return ST_OK;
    (void)snprintf(line, sizeof(line), "tokens of %s: %lld of %lld MB", path_base_name(path),
                   (long long)(done >> 20), (long long)(all >> 20));
    return l->heard(l->heard_context, LOG_INFO, all > (32 << 20) ? line : NULL);
}

static status skipped_report(void *context, const char *path, int64_t lines, const char *first)
{
    const train_loader *l = context;
    char line[512];
    if (l->heard == NULL) return ST_OK;
    (void)snprintf(line, sizeof(line),
                   "%s: skipped %lld line%s (data.on_error: skip); the first: %s",
                   path_base_name(path), (long long)lines, text_plural(lines, "s"), first);
    return l->heard(l->heard_context, LOG_WARN, line);
}

static status malformed_report(void *context, const char *path, int64_t at)
{
    const train_loader *l = context;
    char line[512];
    if (l->heard == NULL) return ST_OK;
    (void)snprintf(
        line, sizeof(line),
        "%.200s is not UTF-8 (byte %lld of its text): the model learns its bytes as they "
        "are, or U+FFFD; convert the file of data.train with iconv",
        path_base_name(path), (long long)at);
    return l->heard(l->heard_context, LOG_WARN, line);
}

// Says by name what a tokenizer's file asks for and training does not do.
static status unapplied_report(const train_loader *l)
{
    const char *left = data_tokenizer_unapplied(l->tokenizer, 0);
    char line[512];
    if (left == NULL || l->heard == NULL) return ST_OK;
    (void)snprintf(line, sizeof(line),
                   "the tokenizer's file asks for %s, which training leaves out", left);
    return l->heard(l->heard_context, LOG_WARN, line);
}

// Formats data.valid for the dataset: NULL, a share, or a path.
static status valid_text(const run_config *r, char buffer[VALID_TEXT_BYTES], const char **out)
{
    double share = 0.0;
    *out = NULL;
    if (!run_config_has_valid(r)) return ST_OK;
    if (run_config_valid_share(r, &share)) {
        (void)snprintf(buffer, VALID_TEXT_BYTES, "%.17g", share);
        *out = buffer;
        return ST_OK;
    }
    if (r->data.valid.count != 1) {
        return fail(ST_CONFIG_RANGE,
                    "data.valid has %lld entries; give one path or glob, or a "
                    "share of data.train",
                    (long long)r->data.valid.count);
    }
    *out = r->data.valid.items[0];
    return ST_OK;
}

static status chat_spec_of(const train_loader *l, data_chat_spec *out)
{
    _Static_assert((int)RUN_FORMAT_SHAREGPT == (int)DATA_FORMAT_SHAREGPT &&
                       (int)RUN_TRAINED_LAST == (int)DATA_TRAINED_LAST,
                   "both name the same choices");
    *out = (data_chat_spec){.source = l->r->data.chat_template,
                            .tokenizer = l->tokenizer,
                            .format = (data_format)l->r->data.format,
                            .trained = (data_trained)l->r->data.trained};
    const run_samples samples = run_objective_at(l->r->train.objective)->samples;
    if (samples == RUN_SAMPLES_PAIRS) out->format = DATA_FORMAT_PAIRS;
    if (samples == RUN_SAMPLES_LABELLED) out->format = DATA_FORMAT_LABELLED;
    if (samples == RUN_SAMPLES_ROLLOUTS) out->format = DATA_FORMAT_ROLLOUTS;
    out->scores = run_objective_at(l->r->train.objective)->kind == OBJECTIVE_REWARD;
    out->divides = l->r->objective.scale == RUN_SCALE_GROUP;
    out->compares = l->r->objective.kl > 0.0;
    file_info info = {.modified_ns = 0};
    if (l->r->data.train.count > 0) {
        TRY(l->h->api->path_info(l->h, l->r->data.train.items[0], &info));
    } else if (run_config_has_rollouts(l->r)) {
        TRY(l->h->api->path_info(l->h, l->r->rollout.prompts, &info));
    }
    if (info.kind == FILE_KIND_REGULAR) out->unix_s = info.modified_ns / 1000000000;
    const char *path = l->r->data.tokenizer;
    if (path == NULL || strcmp(path, "auto") == 0) path = l->r->model.from;
    return data_chat_folder(l->h, l->a, path, &out->folder);
}

status train_loader_exclude(train_loader *l, const char *const *entries, int64_t count)
{
    l->excluded = entries;
    l->excluded_count = count;
    if (l->prompts != NULL) {
        return data_prompts_exclude(l->prompts, entries, count, &l->excluded_found);
    }
    return data_dataset_exclude(l->dataset, entries, count, &l->excluded_found);
}

static status exclude(train_loader *l)
{
    const char *const *entries = NULL;
    int64_t count = 0;
    char line[256];
    const char *noun = l->prompts != NULL ? "prompt" : "document";
    if (l->r->data.exclude == NULL) return ST_OK;
    TRY(data_exclusions_read(l->h, l->a, l->r->data.exclude, &entries, &count));
    TRY(train_loader_exclude(l, entries, count));
    if (l->heard == NULL) return ST_OK;
    (void)snprintf(line, sizeof(line), "data.exclude: %lld %s%s left out, by a list of %lld",
                   (long long)l->excluded_found, noun, text_plural(l->excluded_found, "s"),
                   (long long)count);
    return l->heard(l->heard_context, LOG_INFO, line);
}

status train_loader_prepare(train_loader *l, const char *cache_folder,
                            status (*heard)(void *context, log_level level, const char *line),
                            void *context)
{
    char buffer[VALID_TEXT_BYTES];
    const char *valid = NULL;
    data_chat_spec chat;
    data_phase *phases = NULL;
    const run_samples samples = run_objective_at(l->r->train.objective)->samples;
    TRY(valid_text(l->r, buffer, &valid));
    TRY(chat_spec_of(l, &chat));
    l->heard = heard;
    l->heard_context = context;
    TRY(unapplied_report(l));
    if (run_config_has_rollouts(l->r)) {
        TRY(arena_new(l->a, 1, &l->prompts));
        TRY(data_prompts_read(l->h, l->a, &chat, l->r->rollout.prompts,
                              l->r->train.seq - l->r->rollout.max_tokens, l->prompts));
        return exclude(l);
    }
    TRY(train_curriculum(l->a, l->r, &phases));
    const data_progress progress = {.report = progress_report,
                                    .skipped = skipped_report,
                                    .malformed = malformed_report,
                                    .context = l};
    const data_dataset_spec spec = {
        .train = l->r->data.train.items,
        .train_count = l->r->data.train.count,
        .valid = valid,
        .seq = l->r->train.seq,
        .packing = (data_packing)l->r->data.packing, // in the same order
        .positions = (data_positions)l->r->data.positions,
        .temperature = l->r->data.temperature,
        .phases = phases,
        .phase_count = l->r->data.curriculum.count,
        .seed = (uint64_t)l->r->train.seed,
        .tokenizer = l->tokenizer,
        .cache_folder = cache_folder,
        .skips_bad_lines = l->r->data.on_error == RUN_ON_ERROR_SKIP,
        .progress = &progress,
        .chat = samples != RUN_SAMPLES_TEXT ? &chat : NULL,
    };
    TRY(data_dataset_open(l->h, l->a, &spec, &l->dataset));
    return exclude(l);
}

data_tokenizer *train_loader_encoder(train_loader *l)
{
    return l->tokenizer;
}

status train_loader_chat(train_loader *l, const char *name, data_chat **out)
{
    data_chat_spec spec;
    TRY(chat_spec_of(l, &spec));
    if (strcmp(name, "auto") != 0) spec.source = name;
    spec.format = DATA_FORMAT_MESSAGES;
    return data_chat_open(l->h, l->a, &spec, out);
}

const data_tokenizer *train_loader_decoder(const train_loader *l)
{
    return l->tokenizer;
}

void train_loader_excluded(const train_loader *l, const char *const **entries, int64_t *count)
{
    *entries = l->excluded;
    *count = l->excluded_count;
}

const data_dataset *train_loader_dataset(const train_loader *l)
{
    return l->dataset;
}

const data_prompts *train_loader_prompts(const train_loader *l)
{
    return l->prompts;
}

int64_t train_loader_sequences(const train_loader *l)
{
    if (l->prompts != NULL) return l->prompts->count * l->r->rollout.group;
    return data_dataset_sequences(l->dataset, DATA_TRAIN);
}

bool train_loader_has_valid(const train_loader *l)
{
    if (l->prompts != NULL) return false;
    return data_dataset_sequences(l->dataset, DATA_VALID) > 0;
}

int64_t train_loader_tokens(const train_loader *l)
{
    if (l->prompts != NULL) return l->prompts->tokens;
    return data_dataset_tokens(l->dataset, DATA_TRAIN);
}

status train_loader_about(const train_loader *l, arena *a, const run_config *r, char **out)
{
    char count[32];
    const double sequences = (double)r->train.steps * (double)r->train.global_batch;
    const int64_t tokens = train_loader_tokens(l), sources = train_loader_sources(l);
    if (l->prompts != NULL) {
        return arena_format(a, out, "%lld prompt%s  %lld completions of each  %.2f epochs planned",
                            (long long)l->prompts->count, text_plural(l->prompts->count, "s"),
                            (long long)r->rollout.group,
                            sequences / (double)max_i64(1, train_loader_sequences(l)));
    }
    return arena_format(a, out, "%lld source%s  %s tokens  %.2f epochs planned", (long long)sources,
                        text_plural(sources, "s"), text_count_human((double)tokens, count),
                        sequences * (double)r->train.seq / (double)max_i64(1, tokens));
}

int64_t train_loader_sources(const train_loader *l)
{
    if (l->prompts != NULL) return 1;
    return data_dataset_sources(l->dataset);
}

hash128 train_loader_id(const train_loader *l)
{
    if (l->prompts != NULL) return l->prompts->id;
    return data_dataset_id(l->dataset);
}

// ---- training -----------------------------------------------------------------------------------

// Narrows a batch's range of sequences to those of a rank.
static void part_of(const train_loader *l, const plan_mesh *mesh, int64_t *first, int64_t *count)
{
    int64_t skipped = 0, own = 0;
    plan_own_sequences(mesh, l->r->determinism.mode == RUN_STRICT,
                       (int32_t)l->r->determinism.shards, *count, &skipped, &own);
    *first += skipped;
    *count = own;
}

static void own_part(const train_loader *l, int64_t *first, int64_t *count)
{
    part_of(l, &l->mesh, first, count);
}

// Finds this rank's sequences of a step. They follow those consumed before first_step and those of
// steps first_step .. step - 1. Pure: it reads only the configuration.
static void step_range(void *context, int64_t step, int64_t *first, int64_t *count)
{
    const train_loader *l = context;
    const int64_t entries = run_config_ramp_count(l->r);
    *first = l->first_sequence;
    *count = run_config_batch(l->r, step - 1);
    for (int64_t i = 0; i < entries; i++) {
        int64_t begin = 0, size = 0, end = step - 1, next = 0, next_size = 0;
        run_config_ramp_at(l->r, i, &begin, &size);
        if (i + 1 < entries) {
            run_config_ramp_at(l->r, i + 1, &next, &next_size);
            end = min_i64(end, next);
        }
        begin = max_i64(begin, l->first_step - 1);
        if (end > begin) *first += (end - begin) * size;
    }
    own_part(l, first, count);
}

status train_loader_start(train_loader *l, const plan_mesh *mesh, int64_t first_step,
                          int64_t first_sequence)
{
    l->mesh = *mesh;
    l->first_step = first_step;
    l->first_sequence = first_sequence;
    const data_loader_args args = {.h = l->h,
                                   .dataset = l->dataset,
                                   .split = DATA_TRAIN,
                                   .first_step = first_step,
                                   .last_step = l->r->train.steps,
                                   .max_count = run_config_batch_max(l->r),
                                   .range = step_range,
                                   .context = l};
    if (first_step > l->r->train.steps || l->prompts != NULL) return ST_OK;
    return data_loader_create(&args, &l->loader);
}

void train_loader_positions(const train_loader *l, const int32_t *from, int64_t count, int32_t *to)
{
    const int64_t cp_size = plan_mesh_size(&l->mesh, AXIS_CP), all = l->r->train.seq;
    const int64_t turns = run_config_cp_turns(l->r), pieces = zigzag_pieces(turns);
    const int64_t own = all / cp_size, size = own / pieces;
    for (int64_t i = 0; i < pieces * count; i++) {
        const int64_t first =
            zigzag_position(cp_size, turns, l->mesh.at[AXIS_CP], own, i % pieces * size);
        memcpy(to + i * size, from + i / pieces * all + first, (size_t)size * sizeof(*to));
    }
}

// Writes what the loss needs to know of each document at its first token.
static void row_give(train_loader *l, data_split split, int64_t n, float *given)
{
    const int64_t count = data_dataset_pairs(l->dataset, split, n, l->pairs);
    const double *reference = l->reference;
    if (reference != NULL && split == DATA_VALID) reference += 2 * l->train_samples;
    for (int64_t i = 0; i < count; i++) {
        const data_pair *pair = &l->pairs[i];
        const int64_t rows[] = {pair->first, pair->second};
        for (int k = 0; k < 2; k++) {
            float *to = given + rows[k] * GIVEN_COLUMNS;
            if (reference != NULL) {
                to[GIVEN_REFERENCE] = (float)reference[2 * pair->sample + k];
            }
            to[GIVEN_ADVANTAGE] = pair->wanted ? 1.0F : 0.0F;
        }
    }
}

// Rollouts: numbers of each token.
static void tokens_give(train_loader *l, data_split split, int64_t n, float *given)
{
    const int64_t seq = l->r->train.seq;
    const data_numbers to = {l->numbers, l->numbers + seq, l->numbers + 2 * seq};
    memset(l->numbers, 0, (size_t)(3 * seq) * sizeof(double));
    data_dataset_rollouts(l->dataset, split, n, &to);
    for (int64_t t = 0; t < seq; t++, given += GIVEN_COLUMNS) {
        given[GIVEN_OLD] = (float)to.old[t];
        given[GIVEN_REFERENCE] = (float)to.reference[t];
        given[GIVEN_ADVANTAGE] = (float)to.advantage[t];
    }
}

static status given_put(train_loader *l, data_split split, int64_t first, int64_t count,
                        const int32_t *labels, exec_input *input)
{
    const int64_t row = l->r->train.seq * GIVEN_COLUMNS;
    if (run_config_objective(l->r).kind == OBJECTIVE_NONE) return ST_OK;
    if (l->pairs == NULL) TRY(arena_new(l->a, l->r->train.seq, &l->pairs));
    if (l->given_count < count) {
        TRY(arena_new(l->a, count * row, &l->given));
        l->given_count = count;
    }
    memset(l->given, 0, (size_t)(count * row) * sizeof(float));
    const bool is_group = run_objective_at(l->r->train.objective)->samples == RUN_SAMPLES_ROLLOUTS;
    if (l->numbers == NULL) TRY(arena_new(l->a, 3 * l->r->train.seq, &l->numbers));
    for (int64_t i = 0; i < count; i++) {
        float *to = l->given + i * row;
        is_group ? tokens_give(l, split, first + i, to) : row_give(l, split, first + i, to);
    }
    for (int64_t i = 0; i < count * l->r->train.seq; i++) {
        l->given[i * GIVEN_COLUMNS + GIVEN_LABEL] = labels[i] >= 0 ? 1.0F : 0.0F;
    }
    input->batch[input->batch_count++] =
        (exec_batch){"given", l->given, count * row * (int64_t)sizeof(float)};
    return ST_OK;
}

// Writes the token that follows at each position, and the label of the position after: none at the
// end of a sequence, and none across documents.
static status next_make(train_loader *l, const data_rows *rows, int64_t count)
{
    const int64_t seq = l->r->train.seq, cells = count * seq;
    if (!l->has_next) return ST_OK;
    if (l->next_count < count) {
        TRY(arena_new(l->a, 2 * cells, &l->next));
        l->next_count = count;
    }
    int32_t *ids = l->next, *labels = l->next + cells;
    for (int64_t i = 0; i < cells; i++) {
        const bool goes_on = (i + 1) % seq != 0 &&
                             (rows->documents[i + 1] == rows->documents[i] || rows->labels[i] >= 0);
        const int32_t follows = rows->labels[i] >= 0 ? rows->labels[i] : 0;
        ids[i] = goes_on ? rows->ids[i + 1] : follows;
        labels[i] = goes_on ? rows->labels[i + 1] : DATA_LABEL_IGNORED;
    }
    return ST_OK;
}

static status rows_put(train_loader *l, const data_rows *rows, int64_t count, exec_input *input)
{
    enum { COLUMNS = 5 };
    const int64_t cp_size = plan_mesh_size(&l->mesh, AXIS_CP);
    const int64_t cells = count * l->r->train.seq, own = cells / cp_size;
    const int64_t bytes = own * (int64_t)sizeof(int32_t);
    TRY(next_make(l, rows, count));
    const int32_t *columns[COLUMNS] = {rows->ids, rows->labels, rows->positions, l->next,
                                       l->has_next ? l->next + cells : NULL};
    const int used = l->has_next ? COLUMNS : 3;
    if (cp_size > 1 && l->cut_count < count) {
        TRY(arena_new(l->a, COLUMNS * own, &l->cut));
        l->cut_count = count;
    }
    for (int i = 0; i < used && cp_size > 1; i++) {
        int32_t *to = l->cut + i * own;
        train_loader_positions(l, columns[i], count, to);
        columns[i] = to;
    }
    input->batch[0] = (exec_batch){"ids", columns[0], bytes};
    input->batch[1] = (exec_batch){"labels", columns[1], bytes};
    input->batch[2] = (exec_batch){"positions", columns[2], bytes};
    // Attention reads the documents of all positions.
    input->batch[3] = (exec_batch){"documents", rows->documents, cp_size * bytes};
    input->batch_count = 4;
    if (!l->has_next) return ST_OK;
    input->batch[input->batch_count++] = (exec_batch){"next_ids", columns[3], bytes};
    input->batch[input->batch_count++] = (exec_batch){"next_labels", columns[4], bytes};
    return ST_OK;
}

status train_loader_take(train_loader *l, int64_t step, exec_input *input, int64_t *wait_ns)
{
    data_batch batch;
    TRY(data_loader_next(l->loader, &batch));
    ASSERT(batch.step == step);
    *wait_ns = batch.wait_ns;
    TRY(rows_put(l, &batch.rows, batch.count, input));
    return given_put(l, DATA_TRAIN, batch.first, batch.count, batch.rows.labels, input);
}

// ---- validation ---------------------------------------------------------------------------------

status train_loader_valid(train_loader *l, int64_t first, int64_t count, exec_input *input)
{
    return train_loader_rows(l, DATA_VALID, first, count, input);
}

void train_loader_mesh(train_loader *l, const plan_mesh *mesh)
{
    l->mesh = *mesh;
}

void train_loader_own(const train_loader *l, int64_t *first, int64_t *count)
{
    own_part(l, first, count);
}

void train_loader_reference(train_loader *l, const double *values, int64_t train_count)
{
    l->reference = values;
    l->train_samples = train_count;
}

static status rows_take(train_loader *l, data_split split, int64_t first, int64_t count,
                        exec_input *input)
{
    if (l->valid_count < count) {
        const int64_t cells = count * l->r->train.seq;
        int32_t *all = NULL;
        TRY(arena_new(l->a, 4 * cells, &all));
        l->valid = (data_rows){all, all + cells, all + 2 * cells, all + 3 * cells};
        l->valid_count = count;
    }
    TRY(data_batch_fill(l->dataset, split, first, count, &l->valid));
    TRY(rows_put(l, &l->valid, count, input));
    return given_put(l, split, first, count, l->valid.labels, input);
}

status train_loader_rows(train_loader *l, data_split split, int64_t first, int64_t count,
                         exec_input *input)
{
    own_part(l, &first, &count);
    return rows_take(l, split, first, count, input);
}

status train_loader_share(train_loader *l, int32_t dp, int64_t first, int64_t count,
                          exec_input *input, int64_t *own)
{
    plan_mesh mesh = l->mesh;
    int64_t begin = first;
    mesh.at[AXIS_DP] = dp;
    part_of(l, &mesh, &begin, &count);
    *own = begin - first;
    return rows_take(l, DATA_TRAIN, begin, count, input);
}

void train_loader_close(train_loader *l)
{
    if (l == NULL) return;
    data_loader_destroy(l->loader);
    data_dataset_close(l->dataset);
    data_tokenizer_close(l->tokenizer);
}
