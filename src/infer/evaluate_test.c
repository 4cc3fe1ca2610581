// Evaluation against the reference's losses, against logits of token-by-token generation, and
// against simple readers of the files.
#include "infer/evaluate.h"

#include "data/dataset.h"
#include "fixtures/base/test_paths.h"
#include "infer/hellaswag.h"
#include "infer/windows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct bench {
    arena *a;
    char folder[64]; // scratch
    data_tokenizer *bytes;
} bench;

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static int setup(void **state)
{
    static bench b;
    check(arena_create("test", 0, &b.a));
    check(data_tokenizer_open(host_real(), b.a, "bytes", &b.bytes));
    assert_non_null(test_scratch(b.folder));
    *state = &b;
    return 0;
}

static int teardown(void **state)
{
    const bench *b = *state;
    data_tokenizer_close(b->bytes);
    arena_destroy(b->a);
    test_scratch_remove(b->folder);
    return 0;
}

static const char *write_file(const bench *b, const char *name, const void *bytes, int64_t count)
{
    char *path = NULL;
    check(path_join(b->a, b->folder, name, &path));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, f), count);
    assert_int_equal(fclose(f), 0);
    return path;
}

// The folder of a reference model, or NULL.
static const char *golden_folder(const bench *b, const char *name)
{
    char models[1024], *path = NULL, *file_path = NULL;
    file_info info;
    check(path_join(b->a, test_shared("golden/models", models), name, &path));
    check(path_join(b->a, path, "golden.safetensors", &file_path));
    check(host_real()->api->path_info(host_real(), file_path, &info));
    if (info.kind == FILE_KIND_REGULAR) return path;
    printf("%s is not there: skipped\n", file_path);
    return NULL;
}

static infer_scorer *scorer(const bench *b, const char *folder, int64_t seq, int64_t rows,
                            int threads)
{
    infer_scorer *s = NULL;
    const infer_options options = {
        .threads = threads, .compute = DTYPE_F32, .context = seq, .slots = rows, .strict = true};
    check(infer_scorer_open(host_real(), b->a, folder, &options, false, &s));
    return s;
}

// ---- losses -------------------------------------------------------------------------------------

static int64_t golden_int(const safetensors *files, const char *name, int64_t i)
{
    int64_t value = 0;
    memcpy(&value, (const char *)safetensors_find(files, name)->data + 8 * i, sizeof(value));
    return value;
}

static double golden_loss(const bench *b, const char *folder, const safetensors *files,
                          int64_t rows_at_once, double *expected)
{
    const safetensors_entry *e = safetensors_find(files, "input_ids");
    const int64_t rows = e->dims[0], seq = e->dims[1];
    infer_scorer *s = scorer(b, folder, seq, rows_at_once, 2);
    infer_score score = {.tokens = 0};
    int32_t ids[256], labels[256];
    float value = 0.0F;
    exact_zero(&score.nats);
    assert_true(seq <= 256);
    for (int64_t row = 0; row < rows; row += rows_at_once) {
        const int64_t count = min_i64(rows_at_once, rows - row);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t t = 0; t < seq; t++) {
                ids[t] = (int32_t)golden_int(files, "input_ids", (row + i) * seq + t);
                labels[t] = (int32_t)golden_int(files, "labels", (row + i) * seq + t);
            }
            infer_scorer_row(s, i, ids, labels, seq);
        }
        check(infer_scorer_run(s, count, &score, NULL));
    }
    memcpy(&value, safetensors_find(files, "loss")->data, sizeof(value));
    *expected = (double)value;
    infer_scorer_close(s);
    assert_true(score.tokens > 0);
    return exact_value(&score.nats) / (double)score.tokens;
}

static void test_reference_losses(void **state)
{
    const bench *b = *state;
    static const char *const cases[] = {"gpt2", "llama_gqa", "llama_tied", "qwen3",
                                        "mistral_window"};
    for (int c = 0; c < COUNT_OF(cases); c++) {
        const char *folder = golden_folder(b, cases[c]);
        if (folder == NULL) skip();
        safetensors *files = NULL;
        char *path = NULL;
        double expected = 0.0;
        check(path_join(b->a, folder, "golden.safetensors", &path));
        check(safetensors_open_mapped(host_real(), path, &files));
        const double one = golden_loss(b, folder, files, 1, &expected);
        assert_true(fabs(one - expected) < 2e-5);
        // Two rows at once, then three rows of which one is empty.
        assert_true(one == golden_loss(b, folder, files, 2, &expected));
        assert_true(one == golden_loss(b, folder, files, 3, &expected));
        safetensors_close(files);
    }
}

// -log softmax(logits)[id], in double.
static double nats_of(const float *logits, int64_t vocab, int32_t id)
{
    double highest = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocab; v++) highest = fmax(highest, (double)logits[v]);
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - highest);
    return highest + log(sum) - (double)logits[id];
}

// Losses of ids[1 .. count - 1] from the logits of token-by-token generation.
static void nats_grown(const bench *b, const char *folder, const int32_t *ids, int64_t count,
                       double *out)
{
    infer *g = NULL;
    float *logits = NULL;
    int32_t next = 0;
    const infer_sampling greedy = {.temperature = 0.0};
    const infer_options options = {
        .threads = 1, .compute = DTYPE_F32, .context = count, .logits = true, .strict = true};
    check(infer_open(host_real(), b->a, folder, &options, &g));
    const int64_t vocab = infer_spec(g)->vocab;
    check(arena_new(b->a, vocab, &logits));
    check(infer_begin(g, &greedy, ids, 1, &next));
    for (int64_t i = 1; i < count; i++) {
        check(infer_logits(g, 0, logits));
        out[i] = nats_of(logits, vocab, ids[i]);
        if (i + 1 < count) check(infer_next(g, ids[i], &next));
    }
    infer_close(g);
}

static void test_losses_are_those_of_logits(void **state)
{
    const bench *b = *state;
    enum { COUNT = 40 };
    static const char *const cases[] = {"gpt2", "qwen3"};
    int32_t ids[COUNT], labels[COUNT];
    double nats[COUNT];
    float losses[2 * COUNT];
    for (int c = 0; c < COUNT_OF(cases); c++) {
        const char *folder = golden_folder(b, cases[c]);
        if (folder == NULL) skip();
        for (int i = 0; i < COUNT; i++) ids[i] = i * 37 % 251;
        for (int i = 0; i < COUNT; i++) labels[i] = i + 1 < COUNT && i % 5 != 3 ? ids[i + 1] : -1;
        nats_grown(b, folder, ids, COUNT, nats);
        infer_scorer *s = scorer(b, folder, COUNT, 2, 1);
        infer_score score = {.tokens = 0};
        exact_zero(&score.nats);
        infer_scorer_row(s, 0, ids, labels, 7); // a shorter row in the same batch
        infer_scorer_row(s, 1, ids, labels, COUNT);
        check(infer_scorer_run(s, 2, &score, losses));
        double sum = 0.0;
        for (int i = 0; i < COUNT; i++) {
            const double expected = labels[i] < 0 ? 0.0 : nats[i + 1];
            assert_true(fabs((double)losses[COUNT + i] - expected) < 1e-4);
            if (i < 7) assert_true(losses[i] == losses[COUNT + i]);
            sum += (double)losses[i] * (i < 7 ? 1.0 : 0.0) + (double)losses[COUNT + i];
        }
        assert_int_equal(score.tokens, 31 + 6);
        assert_true(fabs(exact_value(&score.nats) - sum) < 1e-9 * sum);
        ids[3] = 257;
        infer_scorer_row(s, 0, ids, labels, 7);
        assert_int_equal(infer_scorer_run(s, 1, &score, NULL), ST_DATA);
        infer_scorer_close(s);
    }
}

// ---- windows ------------------------------------------------------------------------------------

typedef struct cells {
    infer_rows rows;
    int32_t all[4][8 * 16];
} cells;

static void cells_init(cells *c, int64_t rows, int64_t seq)
{
    assert_true(rows * seq <= 8 * 16);
    c->rows = (infer_rows){.ids = c->all[0],
                           .labels = c->all[1],
                           .positions = c->all[2],
                           .documents = c->all[3],
                           .rows = rows,
                           .seq = seq};
}

static const char text_a[] = "{\"text\": \"One document.\"}\n{\"text\": \"\"}\n{\"text\": \"x\"}\n"
                             "{\"text\": \"Another, longer document of the first file.\"}\n";
static const char text_b[] = "A file is one document; this is the second one here. Caf\xc3\xa9.";

// Without overlap the windows are the trainer's sequences, followed by the rest.
static void test_windows_are_the_trainers(void **state)
{
    const bench *b = *state;
    enum { SEQ = 8 };
    char *cache = NULL;
    check(path_join(b->a, b->folder, "cache", &cache));
    const char *paths[] = {write_file(b, "a.jsonl", text_a, sizeof(text_a) - 1),
                           write_file(b, "b.txt", text_b, sizeof(text_b) - 1)};
    for (int packing = DATA_PACKING_MASKED; packing <= DATA_PACKING_PLAIN; packing++) {
        data_dataset *d = NULL;
        infer_windows *w = NULL;
        char *valid = NULL;
        check(arena_format(b->a, &valid, "%s/[ab].*", b->folder));
        const data_dataset_spec spec = {.train = paths,
                                        .train_count = 2,
                                        .valid = valid,
                                        .seq = SEQ,
                                        .packing = (data_packing)packing,
                                        .tokenizer = b->bytes,
                                        .cache_folder = cache};
        check(data_dataset_open(host_real(), b->a, &spec, &d));
        const infer_windows_spec windows = {.paths = paths,
                                            .path_count = 2,
                                            .tokenizer = b->bytes,
                                            .vocab = 257,
                                            .seq = SEQ,
                                            .stride = SEQ,
                                            .crosses_texts = packing == DATA_PACKING_PLAIN};
        check(infer_windows_open(host_real(), b->a, &windows, &w));
        cells mine, theirs;
        cells_init(&mine, 16, SEQ);
        cells_init(&theirs, 1, SEQ);
        const data_rows rows = {theirs.all[0], theirs.all[1], theirs.all[2], theirs.all[3]};
        int64_t filled = 0, count = data_dataset_sequences(d, DATA_VALID);
        check(infer_windows_next(w, &mine.rows, &filled));
        assert_true(count > 12 && (filled == count || filled == count + 1) && filled < 16);
        for (int64_t n = 0; n < count; n++) { // the trainer's come in another order
            const int64_t window = data_dataset_place(d, DATA_VALID, n).sequence;
            check(data_batch_fill(d, DATA_VALID, n, 1, &rows));
            for (int k = 0; k < 4; k++) {
                assert_memory_equal(mine.all[k] + window * SEQ, theirs.all[k],
                                    SEQ * sizeof(int32_t));
            }
        }
        assert_true(infer_windows_share(w) == 1.0);
        infer_windows_close(w);
        data_dataset_close(d);
    }
}

// For every stride, each token that has a predecessor is predicted exactly once, with at least seq
// - stride tokens before it where the stream has them.
static void predicted_once(const bench *b, const char *path, int64_t seq, int64_t stride,
                           int64_t rows, int64_t limit)
{
    const int64_t tokens = (int64_t)sizeof(text_b) - 1 + (data_tokenizer_eot(b->bytes) >= 0);
    infer_windows *w = NULL;
    const infer_windows_spec spec = {.paths = &path,
                                     .path_count = 1,
                                     .tokenizer = b->bytes,
                                     .vocab = 257,
                                     .seq = seq,
                                     .stride = stride,
                                     .limit = limit};
    check(infer_windows_open(host_real(), b->a, &spec, &w));
    cells c;
    cells_init(&c, rows, seq);
    int64_t window = 0, filled = 0, next = 1, bytes = 0;
    for (;;) {
        check(infer_windows_next(w, &c.rows, &filled));
        if (filled == 0) break;
        for (int64_t i = 0; i < filled * seq; i++) {
            const int64_t at = (window + i / seq) * stride + i % seq;
            if (at < (int64_t)sizeof(text_b) - 1) {
                assert_int_equal(c.rows.ids[i], (unsigned char)text_b[at]);
            }
            assert_int_equal(c.rows.positions[i], i % seq);
            if (c.rows.labels[i] < 0) continue;
            assert_int_equal(at + 1, next);
            assert_true(i % seq >= min_i64(at, seq - stride));
            const bool is_text = next < (int64_t)sizeof(text_b) - 1;
            assert_int_equal(c.rows.labels[i],
                             is_text ? (unsigned char)text_b[next] : data_tokenizer_eot(b->bytes));
            if (is_text) bytes++;
            next++;
        }
        window += filled;
    }
    const infer_windows_count count = infer_windows_counted(w);
    assert_int_equal(next - 1, limit > 0 ? min_i64(limit, tokens - 1) : tokens - 1);
    assert_int_equal(count.tokens, next - 1);
    assert_int_equal(count.bytes, bytes);
    assert_int_equal(count.documents, 1);
    infer_windows_close(w);
}

static void test_every_token_once(void **state)
{
    const bench *b = *state;
    const char *path = write_file(b, "once.txt", text_b, sizeof(text_b) - 1);
    for (int64_t seq = 1; seq <= 16; seq += 5) {
        for (int64_t stride = 1; stride <= seq; stride += 2) {
            predicted_once(b, path, seq, stride, 1 + stride % 4, 0);
            predicted_once(b, path, seq, stride, 3, 17);
        }
    }
    predicted_once(b, path, 16, 16, 8, 0);
    predicted_once(b, path, 13, 4, 2, 1000);
}

// ---- HellaSwag ----------------------------------------------------------------------------------

static const char classic[] = "The cat\n1\nsat\nran off at once\nis\nzz zz\n"
                              "A dog: it is\r\n3\r\nx\r\ny y\r\nbig and old\r\nred\r\n"
                              "Rain\n0\nfalls down\nq\nb\nc\n";
static const char lines[] =
    "{\"ctx\": \"The cat\", \"label\": 1, \"endings\": [\"sat\", \"ran off at once\", \"is\", \"zz zz\"]}\n"
    "{\"ctx\": \"A dog: it is\", \"label\": \"3\", \"endings\": [\"x\", \"y y\", \"big and old\", \"red\"]}\n"
    "\n{\"ctx\": \"Rain\", \"label\": 0, \"endings\": [\"falls down\", \"q\", \"b\", \"c\"]}";

static void brute_force(const bench *b, const char *folder, const hellaswag_list *list,
                        hellaswag_result *out)
{
    double nats[64];
    *out = (hellaswag_result){.count = list->count};
    for (int64_t i = 0; i < list->count; i++) {
        int64_t best = 0, best_norm = 0;
        double highest = -HUGE_VAL, highest_norm = -HUGE_VAL;
        for (int64_t k = 0; k < 4; k++) {
            const hellaswag_ending *e = &list->items[i].endings[k];
            double sum = 0.0;
            nats_grown(b, folder, e->ids, e->count, nats);
            for (int64_t t = e->context; t < e->count; t++) sum -= nats[t];
            assert_true(fabs(sum - e->score) < 1e-3);
            if (sum > highest) best = k;
            highest = fmax(highest, sum);
            if (sum / (double)e->bytes > highest_norm) best_norm = k;
            highest_norm = fmax(highest_norm, sum / (double)e->bytes);
        }
        out->accuracy += best == list->items[i].label ? 1.0 / (double)list->count : 0.0;
        out->accuracy_norm += best_norm == list->items[i].label ? 1.0 / (double)list->count : 0.0;
    }
}

static void test_hellaswag(void **state)
{
    const bench *b = *state;
    const char *folder = golden_folder(b, "llama_gqa");
    if (folder == NULL) skip();
    const char *paths[] = {write_file(b, "h.txt", classic, sizeof(classic) - 1),
                           write_file(b, "h.jsonl", lines, sizeof(lines) - 1)};
    double scores[12];
    for (int f = 0; f < 2; f++) {
        for (int64_t rows = 1; rows <= 5; rows += 2) {
            hellaswag_list list = {0};
            hellaswag_result got, expected;
            check(hellaswag_read(host_real(), b->a, b->bytes, paths[f], 0, &list));
            assert_int_equal(list.count, 3);
            infer_scorer *s = scorer(b, folder, list.longest - 1, rows, (int)rows);
            check(hellaswag_score(s, b->a, &list, NULL, &got));
            infer_scorer_close(s);
            for (int64_t i = 0; i < 12; i++) {
                const double score = list.items[i / 4].endings[i % 4].score;
                if (f == 0 && rows == 1) scores[i] = score;
                assert_true(score == scores[i]);
            }
            if (rows > 1) continue;
            brute_force(b, folder, &list, &expected);
            assert_int_equal(got.count, 3);
            assert_true(fabs(got.accuracy - expected.accuracy) < 1e-12);
            assert_true(fabs(got.accuracy_norm - expected.accuracy_norm) < 1e-12);
        }
    }
}

static void test_hellaswag_refuses(void **state)
{
    const bench *b = *state;
    static const char *const wrong[] = {
        "ctx\n4\na\nb\nc\nd\n", "ctx\nx\na\nb\nc\nd\n", "ctx\n1\na\nb\nc\n",
        "{\"ctx\": \"a\", \"label\": 0}",
        "{\"ctx\": \"a\", \"label\": 2, \"endings\": [\"a\", \"b\"]}"};
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        hellaswag_list list = {0};
        const char *path = write_file(b, "wrong", wrong[i], (int64_t)strlen(wrong[i]));
        assert_int_equal(hellaswag_read(host_real(), b->a, b->bytes, path, 0, &list), ST_DATA);
        assert_non_null(strstr(error_last()->text, "line"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_losses),
        cmocka_unit_test(test_losses_are_those_of_logits),
        cmocka_unit_test(test_windows_are_the_trainers),
        cmocka_unit_test(test_every_token_once),
        cmocka_unit_test(test_hellaswag),
        cmocka_unit_test(test_hellaswag_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
