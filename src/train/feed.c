// Batches for steps, out of the data floor: a thread fills the next step's rows while this one
// runs.
#include "train/feed.h"

#include "data/dataset.h"
#include "data/loader.h"
#include "op/zigzag.h"

#include <stdio.h>
#include <string.h>

enum { VALID_TEXT_BYTES = 64 };

struct train_feed {
    const host *h;
    arena *a;
    const run_config *r;
    plan_mesh mesh;
    data_tokenizer *tokenizer;
    data_dataset *dataset;
    data_loader *loader;
    int64_t first_step, first_sequence; // where the loader began
    data_rows valid;                    // (valid_count, seq)
    int64_t valid_count;
    int32_t *cut; // with layout.cp: this rank's positions of ids, labels, positions
    int64_t cut_count;
    status (*heard)(void *context, const char *line);
    void *heard_context;
};

status train_feed_open(const host *h, arena *a, const run_config *r, train_feed **out)
{
    TRY(arena_new(a, 1, out));
    train_feed *f = *out;
    f->h = h;
    f->a = a;
    f->r = r;
    const char *path = r->data.tokenizer;
    if (path != NULL && strcmp(path, "auto") != 0) {
        return data_tokenizer_open(h, a, path, &f->tokenizer);
    }
    // The one in model.from, where there is one; else bytes.
    const status st = data_tokenizer_open(h, a, r->model.from, &f->tokenizer);
    if (st != ST_NOT_FOUND || r->model.from == NULL) return st;
    error_clear();
    return data_tokenizer_open(h, a, NULL, &f->tokenizer);
}

int64_t train_feed_vocab(const train_feed *f)
{
    return data_tokenizer_vocab_size(f->tokenizer);
}

status train_feed_model(const train_feed *f, run_config *r, decoder_spec *out)
{
    const int64_t needed = train_feed_vocab(f);
    TRY(model_spec_from_config(f->h, f->a, r, out));
    if (out->vocab < needed && r->model.vocab == 0 && r->model.from == NULL) {
        r->model.vocab = needed;
        TRY(model_spec_from_config(f->h, f->a, r, out));
    }
    if (out->vocab >= needed) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "the model's vocabulary is %lld, less than the tokenizer's %lld; give another "
                "model.vocab or data.tokenizer",
                (long long)out->vocab, (long long)needed);
}

const char *train_feed_tokenizer(const train_feed *f)
{
    return data_tokenizer_name(f->tokenizer);
}

static status progress_report(void *context, const char *path, int64_t done, int64_t all)
{
    const train_feed *f = context;
    char line[512];
    if (f->heard == NULL) return ST_OK;
    (void)snprintf(line, sizeof(line), "tokens of %s: %lld of %lld MB", path_base_name(path),
                   (long long)(done >> 20), (long long)(all >> 20));
    return f->heard(f->heard_context, all > (32 << 20) ? line : NULL);
}

// data.valid as the dataset wants it: nothing, a share, or a path.
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

status train_feed_prepare(train_feed *f, const char *cache_folder,
                          status (*heard)(void *context, const char *line), void *context)
{
    char buffer[VALID_TEXT_BYTES];
    const char *valid = NULL;
    TRY(valid_text(f->r, buffer, &valid));
    f->heard = heard;
    f->heard_context = context;
    const data_progress progress = {.report = progress_report, .context = f};
    const data_dataset_spec spec = {
        .train = f->r->data.train.items,
        .train_count = f->r->data.train.count,
        .valid = valid,
        .seq = f->r->train.seq,
        .packing =
            f->r->data.packing == RUN_PACKING_MASKED ? DATA_PACKING_MASKED : DATA_PACKING_PLAIN,
        .seed = (uint64_t)f->r->train.seed,
        .tokenizer = f->tokenizer,
        .cache_folder = cache_folder,
        .progress = &progress,
    };
    return data_dataset_open(f->h, f->a, &spec, &f->dataset);
}

const data_tokenizer *train_feed_decoder(const train_feed *f)
{
    return f->tokenizer;
}

const data_dataset *train_feed_dataset(const train_feed *f)
{
    return f->dataset;
}

bool train_feed_has_valid(const train_feed *f)
{
    return data_dataset_sequences(f->dataset, DATA_VALID) > 0;
}

int64_t train_feed_tokens(const train_feed *f)
{
    return data_dataset_tokens(f->dataset, DATA_TRAIN);
}

int64_t train_feed_sources(const train_feed *f)
{
    return data_dataset_sources(f->dataset);
}

hash128 train_feed_id(const train_feed *f)
{
    return data_dataset_id(f->dataset);
}

// ---- training -----------------------------------------------------------------------------------

// Of a batch, what this rank takes.
static void own_part(const train_feed *f, int64_t *first, int64_t *count)
{
    int64_t skipped = 0, own = 0;
    plan_own_sequences(&f->mesh, f->r->determinism.mode == RUN_STRICT,
                       (int32_t)f->r->determinism.shards, *count, &skipped, &own);
    *first += skipped;
    *count = own;
}

// Sequences that steps first_step .. step - 1 take, added to those consumed before. Pure: it reads
// the configuration only.
static void step_range(void *context, int64_t step, int64_t *first, int64_t *count)
{
    const train_feed *f = context;
    const int64_t entries = run_config_ramp_count(f->r);
    *first = f->first_sequence;
    *count = run_config_batch(f->r, step - 1);
    for (int64_t i = 0; i < entries; i++) {
        int64_t begin = 0, size = 0, end = step - 1, next = 0, next_size = 0;
        run_config_ramp_at(f->r, i, &begin, &size);
        if (i + 1 < entries) {
            run_config_ramp_at(f->r, i + 1, &next, &next_size);
            end = min_i64(end, next);
        }
        begin = max_i64(begin, f->first_step - 1);
        if (end > begin) *first += (end - begin) * size;
    }
    own_part(f, first, count);
}

status train_feed_start(train_feed *f, const plan_mesh *mesh, int64_t first_step,
                        int64_t first_sequence)
{
    f->mesh = *mesh;
    f->first_step = first_step;
    f->first_sequence = first_sequence;
    const data_loader_args args = {.h = f->h,
                                   .dataset = f->dataset,
                                   .split = DATA_TRAIN,
                                   .first_step = first_step,
                                   .last_step = f->r->train.steps,
                                   .max_count = run_config_batch_max(f->r),
                                   .range = step_range,
                                   .context = f};
    if (first_step > f->r->train.steps) return ST_OK;
    return data_loader_create(&args, &f->loader);
}

// This rank's positions of all sequences.
static void positions_take(const train_feed *f, const int32_t *from, int64_t count, int32_t *to)
{
    const int64_t ways = plan_mesh_size(&f->mesh, AXIS_CP), all = f->r->train.seq;
    const int64_t turns = run_config_cp_turns(f->r), pieces = zigzag_pieces(turns);
    const int64_t own = all / ways, size = own / pieces;
    for (int64_t i = 0; i < pieces * count; i++) {
        const int64_t first =
            zigzag_position(ways, turns, f->mesh.at[AXIS_CP], own, i % pieces * size);
        memcpy(to + i * size, from + i / pieces * all + first, (size_t)size * sizeof(*to));
    }
}

static status rows_put(train_feed *f, const data_rows *rows, int64_t count, exec_input *input)
{
    const int64_t ways = plan_mesh_size(&f->mesh, AXIS_CP);
    const int64_t cells = count * f->r->train.seq, own = cells / ways;
    const int64_t bytes = own * (int64_t)sizeof(int32_t);
    const int32_t *columns[] = {rows->ids, rows->labels, rows->positions};
    if (ways > 1 && f->cut_count < count) {
        TRY(arena_new(f->a, 3 * own, &f->cut));
        f->cut_count = count;
    }
    for (int i = 0; i < COUNT_OF(columns) && ways > 1; i++) {
        int32_t *to = f->cut + i * own;
        positions_take(f, columns[i], count, to);
        columns[i] = to;
    }
    input->batch[0] = (exec_batch){"ids", columns[0], bytes};
    input->batch[1] = (exec_batch){"labels", columns[1], bytes};
    input->batch[2] = (exec_batch){"positions", columns[2], bytes};
    // Attention asks for those of all positions.
    input->batch[3] = (exec_batch){"documents", rows->documents, ways * bytes};
    input->batch_count = 4;
    return ST_OK;
}

status train_feed_take(train_feed *f, int64_t step, exec_input *input, int64_t *wait_ns)
{
    data_batch batch;
    TRY(data_loader_next(f->loader, &batch));
    ASSERT(batch.step == step);
    *wait_ns = batch.wait_ns;
    return rows_put(f, &batch.rows, batch.count, input);
}

// ---- validation ---------------------------------------------------------------------------------

status train_feed_valid(train_feed *f, int64_t first, int64_t count, exec_input *input)
{
    own_part(f, &first, &count);
    if (f->valid_count < count) {
        const int64_t cells = count * f->r->train.seq;
        int32_t *all = NULL;
        TRY(arena_new(f->a, 4 * cells, &all));
        f->valid = (data_rows){all, all + cells, all + 2 * cells, all + 3 * cells};
        f->valid_count = count;
    }
    TRY(data_batch_fill(f->dataset, DATA_VALID, first, count, &f->valid));
    return rows_put(f, &f->valid, count, input);
}

void train_feed_close(train_feed *f)
{
    if (f == NULL) return;
    data_loader_destroy(f->loader);
    data_dataset_close(f->dataset);
    data_tokenizer_close(f->tokenizer);
}
