// Checkpoints on a disk with corrupt, truncated or foreign files: every change of every file is
// found and named, and pruning keeps the checkpoints that it must keep.
#include "fixtures/train/test_job.h"

#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct bytes {
    char *data;
    int64_t count;
} bytes;

static bytes file_get(arena *a, const char *path)
{
    bytes b = {0};
    assert_ok(host_read_all(host_real(), a, path, 1 << 26, &b.data, &b.count));
    return b;
}

// Writes in place without a sync, because the test does it thousands of times.
static void file_set(const char *path, const char *data, int64_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, (size_t)count, f), count);
    assert_int_equal(fclose(f), 0);
}

static void join(char out[4400], const char *folder, const char *name)
{
    (void)snprintf(out, 4400, "%s/%s", folder, name);
}

// The checkpoint is damaged, and the report names `name`.
static void assert_found(const char *path, const char *name)
{
    arena *a = NULL;
    ckpt_reader *r = NULL;
    assert_ok(arena_create("test", 0, &a));
    text report = {.a = a};
    const status st = ckpt_verify(host_real(), a, path, &report);
    if (st != ST_DAMAGED) print_error("%s: %s\n", name, status_name(st));
    assert_int_equal(st, ST_DAMAGED);
    if (strstr(report.bytes, name) == NULL) print_error("%s is not in: %s\n", name, report.bytes);
    assert_non_null(strstr(report.bytes, name));
    error_clear();
    if (ckpt_reader_open(host_real(), path, &r) == ST_OK) ckpt_reader_close(r);
    arena_destroy(a);
}

static void assert_whole(const char *path)
{
    arena *a = NULL;
    assert_ok(arena_create("test", 0, &a));
    text report = {.a = a};
    const status st = ckpt_verify(host_real(), a, path, &report);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    assert_int_equal(report.length, 0);
    arena_destroy(a);
}

// ---- what is written ----------------------------------------------------------------------------

static void saved_state_is_loaded(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int p = 0; p < 2; p++) {
        for (int64_t file_bytes = 0; file_bytes <= 4096; file_bytes += 4096) {
            test_job t;
            char first[4096], second[4096];
            hash128 x, y, moved;
            ckpt_info info;
            test_job_make(&t, precisions[p]);
            test_save(&t, 10, file_bytes, first);
            assert_ok(ckpt_digest(host_real(), t.a, first, &x));
            test_job_move(&t, 0.5f);
            test_save(&t, 20, file_bytes, second);
            assert_ok(ckpt_digest(host_real(), t.a, second, &moved));
            assert_false(x.high == moved.high && x.low == moved.low);
            assert_ok(ckpt_load(&t.job.state, t.a, first, false, &info));
            assert_int_equal(info.step, 10);
            assert_int_equal(info.sequences, 80);
            assert_int_equal(info.tokens, 640);
            assert_int_equal(info.world, 1);
            assert_true(info.val_loss == 2.5 && isnan(info.best_val_loss) && info.best == NULL);
            assert_string_equal(info.numerics, "cpu ref");
            // Other files and another step give the same digest, which covers the logical tensors
            // alone.
            test_save(&t, 30, file_bytes == 0 ? 1000 : 0, second);
            assert_ok(ckpt_digest(host_real(), t.a, second, &y));
            assert_true(x.high == y.high && x.low == y.low);
            test_job_drop(&t);
        }
    }
}

static void a_reader_finds_and_checks(void **state)
{
    (void)state;
    test_job t;
    char path[4096];
    ckpt_reader *r = NULL;
    int64_t files = 0;
    test_job_make(&t, "fp32");
    test_save(&t, 10, 2000, path);
    assert_ok(ckpt_reader_open(host_real(), path, &r));
    assert_true(ckpt_reader_count(r) > 10);
    assert_null(ckpt_reader_at(r, -1));
    assert_null(ckpt_reader_at(r, ckpt_reader_count(r)));
    assert_null(ckpt_reader_find(r, "weight/none"));
    for (int64_t i = 0; i < ckpt_reader_count(r); i++) {
        const ckpt_tensor *x = ckpt_reader_at(r, i);
        const void *data = NULL;
        assert_ptr_equal(ckpt_reader_find(r, x->name), x);
        assert_ok(ckpt_reader_data(r, x, &data));
        const hash128 sum = hash128_of(data, x->bytes);
        assert_true(sum.high == x->checksum.high && sum.low == x->checksum.low);
        if (i == 0 || x->file != ckpt_reader_at(r, i - 1)->file) files++;
    }
    assert_true(files > 3); // it was split
    ckpt_reader_close(r);
    test_job_drop(&t);
}

// ---- rot, cut, swap -----------------------------------------------------------------------------

static void mutate_file(const char *path, const char *file_name, int64_t from, int64_t to,
                        int64_t stride)
{
    char name[4400];
    arena *a = NULL;
    assert_ok(arena_create("test", 0, &a));
    join(name, path, file_name);
    const bytes b = file_get(a, name);
    for (int64_t at = from; at < min_i64(to, b.count); at += stride) {
        const char was = b.data[at];
        b.data[at] = (char)(was ^ (1 << (at % 8)));
        file_set(name, b.data, b.count);
        assert_found(path, file_name);
        b.data[at] = was;
    }
    const int64_t cuts[] = {0, 1, 7, 8, 9, b.count / 2, b.count - 1};
    for (int i = 0; i < COUNT_OF(cuts); i++) {
        if (cuts[i] >= b.count) continue;
        file_set(name, b.data, cuts[i]);
        assert_found(path, file_name);
    }
    char *longer = calloc(1, (size_t)b.count + 1);
    assert_non_null(longer);
    memcpy(longer, b.data, (size_t)b.count);
    file_set(name, longer, b.count + 1);
    assert_found(path, file_name);
    free(longer);
    assert_int_equal(unlink(name), 0);
    if (strcmp(file_name, "manifest.json") != 0) assert_found(path, file_name);
    file_set(name, b.data, b.count);
    arena_destroy(a);
}

static void every_change_is_found(void **state)
{
    (void)state;
    test_job t;
    char path[4096];
    ckpt_reader *r = NULL;
    int64_t head = 0;
    test_job_make(&t, "bf16");
    test_save(&t, 10, 12000, path);
    assert_ok(ckpt_reader_open(host_real(), path, &r));
    const char *last = NULL;
    char file_name[256];
    for (int64_t i = 0; i < ckpt_reader_count(r); i++) {
        const ckpt_tensor *x = ckpt_reader_at(r, i);
        if (x->file == last) continue;
        last = x->file;
        head = x->offset; // the first tensor follows the header
        (void)snprintf(file_name, sizeof(file_name), "%s", x->file);
        mutate_file(path, file_name, 0, head, i == 0 ? 1 : 23);
        mutate_file(path, file_name, head, INT64_MAX, 211);
    }
    ckpt_reader_close(r);
    mutate_file(path, "manifest.json", 0, INT64_MAX, 3);
    mutate_file(path, "config.json", 0, INT64_MAX, 1);
    mutate_file(path, "config.resolved.yaml", 0, INT64_MAX, 1);
    assert_whole(path);
    test_job_drop(&t);
}

static void the_damaged_tensor_is_named(void **state)
{
    (void)state;
    test_job t;
    char path[4096], name[4400], place[64];
    ckpt_reader *r = NULL;
    ckpt_info info;
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, path);
    assert_ok(ckpt_reader_open(host_real(), path, &r));
    const ckpt_tensor *x = ckpt_reader_at(r, ckpt_reader_count(r) / 2);
    join(name, path, x->file);
    const bytes b = file_get(t.a, name);
    b.data[x->offset + x->bytes / 2] ^= 1;
    file_set(name, b.data, b.count);
    (void)snprintf(place, sizeof(place), "byte %lld", (long long)x->offset);
    assert_found(path, x->name);
    assert_found(path, place);
    assert_int_equal(ckpt_load(&t.job.state, t.a, path, false, &info), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, x->name));
    assert_non_null(strstr(error_last()->text, place));
    assert_non_null(strstr(error_last()->text, x->file));
    ckpt_reader_close(r);
    test_job_drop(&t);
}

static void files_of_two_saves_do_not_mix(void **state)
{
    (void)state;
    static const char *const names[] = {"state-00000-of-00001.safetensors", "manifest.json"};
    test_job t;
    char first[4096], second[4096], x[4400], y[4400];
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, first);
    test_job_move(&t, 0.25f);
    test_save(&t, 20, 0, second);
    for (int i = 0; i < 2; i++) {
        join(x, first, names[i]);
        join(y, second, names[i]);
        const bytes bx = file_get(t.a, x), by = file_get(t.a, y);
        file_set(x, by.data, by.count);
        file_set(y, bx.data, bx.count);
        assert_found(first, names[0]);
        assert_found(second, names[0]);
        file_set(x, bx.data, bx.count);
        file_set(y, by.data, by.count);
    }
    assert_whole(first);
    assert_whole(second);
    test_job_drop(&t);
}

// ---- hostile manifests --------------------------------------------------------------------------

// Writes the manifest with the first occurrence of a text replaced, and with a correct checksum.
static void manifest_forge(const char *path, const bytes *was, const char *from, const char *to)
{
    char name[4400], hex[33];
    const char *at = strstr(was->data, from);
    assert_non_null(at);
    const int64_t before = at - was->data, tail = was->count - 50; // the checksum line and its end
    assert_true(before < tail);
    FILE *f = NULL;
    char *text_bytes = NULL;
    size_t count = 0;
    f = open_memstream(&text_bytes, &count);
    assert_non_null(f);
    (void)fwrite(was->data, 1, (size_t)before, f);
    (void)fputs(to, f);
    const char *rest = at + strlen(from);
    (void)fwrite(rest, 1, (size_t)(was->data + tail - rest), f);
    assert_int_equal(fflush(f), 0);
    (void)hash128_text(hash128_of(text_bytes, (int64_t)count), hex);
    (void)fprintf(f, " \"manifest\": \"%s\"\n}\n", hex);
    assert_int_equal(fclose(f), 0);
    join(name, path, "manifest.json");
    file_set(name, text_bytes, (int64_t)count);
    free(text_bytes);
}

static status open_and_close(const char *path)
{
    ckpt_reader *r = NULL;
    const status st = ckpt_reader_open(host_real(), path, &r);
    if (st == ST_OK) ckpt_reader_close(r);
    return st;
}

static void hostile_manifests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        status st;
    } cases[] = {
        {"\"step\": 10", "\"step\": 10", ST_OK},
        {"state-00000-of-00001.safetensors", "../state-00000-of-00001.safetensors", ST_SECURITY},
        {"state-00000-of-00001.safetensors", "/etc/passwd", ST_SECURITY},
        {"state-00000-of-00001.safetensors", "..", ST_SECURITY},
        {"state-00000-of-00001.safetensors", ".hidden", ST_DAMAGED},
        {"state-00000-of-00001.safetensors", "a\\u0000b", ST_DAMAGED},
        {"state-00000-of-00001.safetensors", "manifest.json", ST_DAMAGED},
        {"state-00000-of-00001.safetensors", "config.json", ST_DAMAGED},
        {"config.resolved.yaml", "../../x", ST_SECURITY},
        {"config.resolved.yaml", "config.json", ST_DAMAGED},
        {"\"step\": 10", "\"step\": -1", ST_DAMAGED},
        {"\"step\": 10", "\"step\": \"10\"", ST_DAMAGED},
        {"\"step\": 10", "\"step\": 1e300", ST_DAMAGED},
        {"trireme-checkpoint-2", "trireme-checkpoint-9", ST_DAMAGED},
        {"\"head_bytes\": ", "\"head_bytes\": 9", ST_DAMAGED},
        {"\"head_bytes\": ", "\"head_bytes\": -", ST_DAMAGED},
        {"\"offset\": ", "\"offset\": 1", ST_DAMAGED},
        {"\"offset\": ", "\"offset\": 900000000000000000", ST_DAMAGED},
        {"\"offset\": ", "\"offset\": -", ST_DAMAGED},
        {"\"shape\": [", "\"shape\": [4611686018427387904, 4611686018427387904, ", ST_DAMAGED},
        {"\"shape\": [", "\"shape\": [-1, ", ST_DAMAGED},
        {"\"shape\": [", "\"shape\": [1,1,1,1,1,1,1,1,1,", ST_DAMAGED},
        {"\"type\": \"fp32\"", "\"type\": \"fp99\"", ST_DAMAGED},
        {"\"type\": \"fp32\"", "\"type\": \"bf16\"", ST_DAMAGED},
        {"\"tensors\": [", "\"tensors\": {}, \"x\": [", ST_DAMAGED},
        {"\"tensors\": [", "\"tensors\": [], \"x\": [", ST_DAMAGED},
        {"\"state\": [", "\"state\": [], \"x\": [", ST_DAMAGED},
        {"\"files\": [",
         "\"files\": [{\"name\": \"gone\", \"bytes\": 0, \"xxh128\": "
         "\"00000000000000000000000000000000\"}, ",
         ST_DAMAGED},
        {"\"digest\": \"", "\"digest\": \"z", ST_DAMAGED},
        {"\"best\": null", "\"best\": \"../step-0000001\"", ST_SECURITY},
        {"\"step\": 10", "\"step\": 11", ST_DAMAGED}, // the folder is called step-0000010
        {"\"step\": 10", "\"step\": 1000000000000000000", ST_DAMAGED},
        {"\"sequences\": 80", "\"sequences\": 9", ST_DAMAGED}, // in 10 steps
        {"\"sequences\": 80", "\"sequences\": 9000000000000000000", ST_DAMAGED},
        {"\"tokens\": 640", "\"tokens\": 9000000000000000000", ST_DAMAGED},
        {"\"seed\": 1", "\"seed\": -1", ST_DAMAGED},
        {"\"world\": 1", "\"world\": 0", ST_DAMAGED},
        {"{\n", "[", ST_DAMAGED},
    };
    test_job t;
    char path[4096], name[4400];
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, path);
    join(name, path, "manifest.json");
    const bytes was = file_get(t.a, name);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        manifest_forge(path, &was, cases[i].from, cases[i].to);
        const status st = open_and_close(path);
        if (st != cases[i].st) {
            print_error("%s -> %s: %s, %s\n", cases[i].from, cases[i].to, status_name(st),
                        error_last()->text);
        }
        assert_int_equal(st, cases[i].st);
    }
    test_job_drop(&t);
}

static void links_are_not_followed(void **state)
{
    (void)state;
    static const char *const names[] = {"state-00000-of-00001.safetensors", "config.json",
                                        "manifest.json"};
    test_job t;
    char path[4096], name[4400], moved[4400];
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, path);
    for (int i = 0; i < 3; i++) {
        join(name, path, names[i]);
        join(moved, t.folder, "elsewhere");
        assert_int_equal(rename(name, moved), 0);
        assert_int_equal(symlink(moved, name), 0);
        assert_int_equal(open_and_close(path), ST_SECURITY);
        assert_int_equal(unlink(name), 0);
        assert_int_equal(rename(moved, name), 0);
    }
    assert_whole(path);
    test_job_drop(&t);
}

// ---- the folder ---------------------------------------------------------------------------------

static void names_have_an_order(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "step-",    "step-x",     "latest",  "step-1.",
        "step-1.x", "step-1.1.1", "step--1", "step-9999999999999999999"};
    int64_t step = 0, fork = 0;
    for (int i = 0; i < COUNT_OF(bad); i++) assert_false(ckpt_name_parse(bad[i], &step, &fork));
    assert_true(ckpt_name_parse("step-0000100", &step, &fork));
    assert_true(step == 100 && fork == 0);
    assert_true(ckpt_name_parse("step-12345678.3", &step, &fork));
    assert_true(step == 12345678 && fork == 3);
}

static bool stands(const test_job *t, const char *name)
{
    char path[4400];
    file_info info;
    join(path, t->folder, name);
    assert_ok(host_real()->api->path_info(host_real(), path, &info));
    return info.kind != FILE_KIND_NONE;
}

static void a_manifest_is_never_written_again(void **state)
{
    (void)state;
    test_job t;
    char first[4096], again[4096], newest[4400];
    char *path = NULL;
    int64_t step = 0;
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, first);
    test_save(&t, 10, 0, again);
    assert_string_equal(path_base_name(first), "step-0000010");
    assert_string_equal(path_base_name(again), "step-0000010.1");
    assert_whole(first);
    assert_ok(ckpt_newest(host_real(), t.a, t.folder, &path, &step));
    assert_string_equal(path, again);
    join(newest, t.folder, "latest");
    assert_whole(newest); // through the link
    test_job_drop(&t);
}

static void pruning_keeps_required_checkpoints(void **state)
{
    (void)state;
    test_job t;
    ckpt_saver *s = NULL;
    test_job_make(&t, "fp32");
    s = test_saver(&t, false, 0);
    static const char *const damaged[] = {"step-0000006"};
    for (int64_t step = 1; step <= 8; step++) {
        ckpt_saved *r = NULL;
        ckpt_order order = test_order(step);
        order.keep =
            (ckpt_keep){.keep = 1, .keep_every = 4, .best = step > 2 ? "step-0000002" : NULL};
        if (step == 8) {
            order.keep.damaged = damaged;
            order.keep.damaged_count = 1;
        }
        order.is_best = step == 2;
        assert_ok(ckpt_saver_begin(s, &order));
        assert_true(ckpt_saver_result(s, true, &r));
        assert_int_equal(r->st, ST_OK);
        assert_int_equal(r->after, ST_OK);
        if (step == 7) assert_true(stands(&t, "step-0000006")); // two are kept at least
    }
    ckpt_saver_destroy(s);
    static const char *const kept[] = {"step-0000002", "step-0000004", "step-0000007",
                                       "step-0000008", "latest",       "best"};
    static const char *const gone[] = {"step-0000001", "step-0000003", "step-0000005"};
    for (int i = 0; i < COUNT_OF(kept); i++) assert_true(stands(&t, kept[i]));
    for (int i = 0; i < COUNT_OF(gone); i++) assert_false(stands(&t, gone[i]));
    ckpt_info info;
    char best[4400];
    join(best, t.folder, "best");
    assert_ok(ckpt_info_read(host_real(), t.a, best, &info));
    assert_int_equal(info.step, 2);
    assert_string_equal(info.best, "step-0000002");
    test_job_drop(&t);
}

static void debris_is_removed(void **state)
{
    (void)state;
    test_job t;
    char path[4096], half[4400];
    test_job_make(&t, "fp32");
    test_save(&t, 10, 0, path);
    join(half, t.folder, "step-0000020");
    assert_ok(host_real()->api->path_mkdir(host_real(), half));
    join(half, t.folder, "step-0000020/state-00000-of-00001.safetensors");
    file_set(half, "abc", 3);
    join(half, t.folder, "step-0000020/manifest.json.tmp");
    file_set(half, "abc", 3);
    join(half, t.folder, "latest.tmp");
    file_set(half, "", 0);
    text removed = {.a = t.a};
    assert_ok(ckpt_debris_remove(host_real(), t.a, t.folder, &removed));
    assert_string_equal(removed.bytes, "latest.tmp, step-0000020");
    assert_false(stands(&t, "step-0000020") || stands(&t, "latest.tmp"));
    assert_whole(path);
    test_job_drop(&t);
}

// State without a manifest and without the mark of a save in progress was a checkpoint: no function
// removes it, takes its name or loads it, and the error says what can still be read.
static void a_lost_manifest_keeps_its_state(void **state)
{
    (void)state;
    test_job t;
    char first[4096], again[4096], name[4400];
    ckpt_entries lost;
    text removed = {.a = NULL};
    ckpt_info info;
    test_job_make(&t, "fp32");
    removed.a = t.a;
    test_save(&t, 10, 0, first);
    join(name, first, "manifest.json");
    assert_int_equal(unlink(name), 0);
    assert_ok(ckpt_debris_remove(host_real(), t.a, t.folder, &removed));
    assert_int_equal(removed.length, 0);
    assert_ok(ckpt_list_lost(host_real(), t.a, t.folder, &lost));
    assert_int_equal(lost.count, 1);
    assert_int_equal(lost.items[0].step, 10);
    assert_int_equal(ckpt_load(&t.job.state, t.a, first, false, &info), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "state-00000-of-00001.safetensors can be read"));
    test_save(&t, 10, 0, again);
    assert_string_equal(path_base_name(again), "step-0000010.1");
    join(name, first, "state-00000-of-00001.safetensors");
    assert_int_equal(truncate(name, 100), 0);
    assert_int_equal(ckpt_info_read(host_real(), t.a, first, &info), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "cannot be read"));
    test_job_drop(&t);
}

// A block with numbers that no run writes is refused, although its checksum is right.
static void numbers_of_no_run_are_refused(void **state)
{
    (void)state;
    enum { APPLIED, HISTORY, SCALE, TINY_SCALE, CASES };
    test_job t;
    test_job_make(&t, "fp32");
    const int64_t row = plan_table_find(&t.plans.run, "step");
    static step_block good, bad;
    assert_ok(exec_read(t.job.e, row, 0, &good, (int64_t)sizeof(good)));
    for (int i = 0; i < CASES; i++) {
        char path[4096];
        ckpt_info info;
        bad = good;
        if (i == APPLIED) bad.device.applied = -1;
        if (i == HISTORY) bad.device.history_count = INT64_MIN;
        if (i == SCALE) bad.device.loss_scale = 0.0;
        if (i == TINY_SCALE) bad.device.loss_scale = 5e-324;
        assert_ok(exec_write(t.job.e, row, 0, &bad, (int64_t)sizeof(bad)));
        test_save(&t, 10 + i, 0, path);
        assert_int_equal(ckpt_load(&t.job.state, t.a, path, false, &info), ST_DAMAGED);
        assert_non_null(strstr(error_last()->text, "step/counts"));
        assert_ok(exec_write(t.job.e, row, 0, &good, (int64_t)sizeof(good)));
    }
    test_job_drop(&t);
}

// Each precision loads the state of each other one: equal values where the types hold them.
static void any_precision_is_loaded(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    for (int from = 0; from < COUNT_OF(precisions); from++) {
        test_job x;
        char path[4096];
        float want[8 * 257], have[8 * 257]; // the embedding
        test_job_make(&x, precisions[from]);
        test_job_move(&x, 0.0625f);
        test_save(&x, 10, 0, path);
        assert_ok(ckpt_weight_get(&x.job.state, 0, want));
        for (int to = 0; to < COUNT_OF(precisions); to++) {
            test_job y;
            ckpt_info info;
            test_job_make(&y, precisions[to]);
            assert_ok(ckpt_load(&y.job.state, y.a, path, false, &info));
            assert_int_equal(info.rounded, 0); // masters are fp32
            assert_ok(ckpt_weight_get(&y.job.state, 0, have));
            assert_memory_equal(have, want, sizeof(want));
            test_job_drop(&y);
        }
        test_job_drop(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_state_is_loaded),
        cmocka_unit_test(a_reader_finds_and_checks),
        cmocka_unit_test(every_change_is_found),
        cmocka_unit_test(the_damaged_tensor_is_named),
        cmocka_unit_test(files_of_two_saves_do_not_mix),
        cmocka_unit_test(hostile_manifests_are_refused),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(names_have_an_order),
        cmocka_unit_test(a_manifest_is_never_written_again),
        cmocka_unit_test(pruning_keeps_required_checkpoints),
        cmocka_unit_test(debris_is_removed),
        cmocka_unit_test(a_lost_manifest_keeps_its_state),
        cmocka_unit_test(numbers_of_no_run_are_refused),
        cmocka_unit_test(any_precision_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
