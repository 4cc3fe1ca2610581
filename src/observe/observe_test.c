// Tests records as JSON, as lines and as TensorBoard events, the width of the live line, and that a
// resumed run cuts the metrics back.
#include "base/format/json.h"
#include "base/hash.h"
#include "fixtures/base/test_paths.h"
#include "observe/observe.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static char folder[64];

static obs_record record_of(int64_t step)
{
    return (obs_record){.step = step,
                        .steps = 2000,
                        .tokens = step * 1024,
                        .time = 1.5e9,
                        .loss = 2.5,
                        .val_loss = (double)NAN,
                        .grad_norm = 1.25,
                        .lr = 3e-4,
                        .loss_scale = 1.0,
                        .tokens_per_s = 41200.0,
                        .mfu = 0.381,
                        .wait = 0.012,
                        .eta_s = 100.0};
}

static void crc_has_its_published_value(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    const uint8_t zeros[32] = {0};
    assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aau); // RFC 3720, B.4
}

// Walks over the records as a reader does and adds up their values.
static void events_can_be_read(void **state)
{
    (void)state;
    arena *a = NULL;
    obs_events *e = NULL;
    char path[128], *bytes = NULL;
    int64_t count = 0, at = 0, events = 0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/events.out.tfevents.1.here", folder);
    assert_int_equal(obs_events_open(host_real(), a, path, 0, &e), ST_OK);
    const obs_record r = record_of(300);
    assert_int_equal(obs_events_add(e, &r), ST_OK);
    assert_int_equal(obs_events_close(e), ST_OK);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &bytes, &count), ST_OK);
    while (at < count) {
        uint64_t length = 0;
        uint32_t sum = 0;
        memcpy(&length, bytes + at, sizeof(length));
        assert_true(at + 16 + (int64_t)length <= count);
        memcpy(&sum, bytes + at + 12 + length, sizeof(sum));
        const uint32_t crc = crc32c(0, bytes + at + 12, (int64_t)length);
        assert_int_equal(sum, ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
        assert_int_equal(bytes[at + 12], 0x09);
        at += 16 + (int64_t)length;
        events++;
    }
    assert_int_equal(at, count);
    assert_int_equal(events, 2 + 5); // version, session; five scalars, no validation loss
    arena_destroy(a);
}

// No line is wider than requested, and none lacks step, loss and (from 80 columns) the time left.
static void lines_fit_their_columns(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    obs_record r = record_of(41);
    r.steps = 50000;
    r.eta_s = 12345.0;
    text whole = {.a = a};
    assert_int_equal(obs_print_line(&r, 0, &whole), ST_OK);
    assert_non_null(strstr(whole.bytes, "  wait "));
    assert_null(strstr(whole.bytes, "  comm ")); // one rank has none
    r.comm = 0.08;
    r.comm_exposed = 0.02;
    text ranks = {.a = a}, line = {.a = a};
    assert_int_equal(obs_print_line(&r, 0, &ranks), ST_OK);
    assert_non_null(strstr(ranks.bytes, "  comm 8.0% (75% hidden)"));
    assert_int_equal(obs_print_json(&r, &line), ST_OK);
    assert_non_null(strstr(line.bytes, "\"comm\": 0.08, \"comm_exposed\": 0.02"));
    r.comm = r.comm_exposed = 0;
    int64_t before = 0;
    for (int columns = 40; columns <= 200; columns++) {
        text t = {.a = a};
        assert_int_equal(obs_print_line(&r, columns, &t), ST_OK);
        assert_true(t.length <= columns && t.length >= before);
        assert_non_null(strstr(t.bytes, "41/50000  loss "));
        if (columns >= 80) assert_non_null(strstr(t.bytes, "  tok/s "));
        if (columns >= 80) assert_non_null(strstr(t.bytes, "  eta "));
        before = t.length;
    }
    assert_int_equal(before, whole.length);
    arena_destroy(a);
}

// A run that goes on continues the sums of the newest record that is kept.
static void goodput_is_continued(void **state)
{
    (void)state;
    arena *a = NULL;
    obs_metrics *m = NULL;
    obs_losses l;
    obs_goodput g = {0}, before = {0};
    char path[128], line[256];
    double time = 0.0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/goodput.jsonl", folder);
    const obs_metrics_config c = {.path = path};
    assert_int_equal(obs_metrics_open(host_real(), a, &c, &m), ST_OK);
    assert_false(obs_metrics_before(m, &before, &time));
    for (int64_t step = 1; step <= 4; step++) {
        obs_record r = record_of(step);
        g.steps_s += 2.0;
        g.lost_s[OBS_COPIES] += 0.5;
        r.goodput = &g;
        r.time = 100.0 + (double)step;
        assert_int_equal(obs_metrics_add(m, &r), ST_OK);
    }
    assert_int_equal(obs_metrics_close(m), ST_OK);
    const obs_metrics_config again = {.path = path, .finished_steps = 3};
    assert_int_equal(obs_metrics_open(host_real(), a, &again, &m), ST_OK);
    assert_true(obs_metrics_before(m, &before, &time));
    assert_int_equal(obs_metrics_close(m), ST_OK);
    assert_true(before.steps_s == 6.0 && before.lost_s[OBS_COPIES] == 1.5 && time == 103.0);
    assert_true(obs_goodput_seconds(&before) == 7.5 && obs_goodput_share(&before) == 0.8);
    obs_goodput_print(&before, line, (int64_t)sizeof(line));
    assert_string_equal(line, "goodput 80.0% (copies 20.0%)");
    assert_int_equal(obs_losses_read(host_real(), a, path, 0.0, &l), ST_OK);
    assert_true(l.has_goodput && l.goodput.steps_s == 6.0 && l.steps == 3);
    assert_int_equal(obs_losses_read(host_real(), a, path, 102.5, &l), ST_OK); // of this run alone
    assert_true(l.has_goodput && l.goodput.steps_s == 2.0 && l.steps == 1);
    assert_true(l.goodput.lost_s[OBS_COPIES] == 0.5);
    assert_int_equal(obs_losses_read(host_real(), a, path, 200.0, &l), ST_OK);
    assert_true(!l.has_goodput && l.steps == 0 && obs_goodput_seconds(&l.goodput) == 0.0);
    arena_destroy(a);
}

static void metrics_are_cut_back(void **state)
{
    (void)state;
    arena *a = NULL;
    obs_metrics *m = NULL;
    char path[128], other[160], *bytes = NULL;
    int64_t count = 0, lines = 0;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    assert_int_equal(obs_metrics_open(host_real(), a, &(obs_metrics_config){path, 0, 0}, &m),
                     ST_OK);
    for (int64_t step = 1; step <= 12; step++) {
        const obs_record r = record_of(step);
        assert_int_equal(obs_metrics_add(m, &r), ST_OK);
    }
    assert_int_equal(obs_metrics_close(m), ST_OK);
    // No other file is written for it, as on a full disk.
    (void)snprintf(other, sizeof(other), "%s.tmp/full", path);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), other), ST_OK);
    assert_int_equal(obs_metrics_open(host_real(), a, &(obs_metrics_config){path, 9, 0}, &m),
                     ST_OK);
    assert_int_equal(obs_metrics_close(m), ST_OK);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &bytes, &count), ST_OK);
    for (char *line = bytes; *line != '\0'; lines++) {
        char *end = strchr(line, '\n');
        json *value = NULL;
        assert_non_null(end);
        assert_int_equal(json_parse(line, end - line, "a line", &value), ST_OK);
        assert_int_equal(json_int(json_get(value, "step"), -1), lines + 1);
        json_free(value);
        line = end + 1;
    }
    assert_int_equal(lines, 9);
    arena_destroy(a);
}

// Returns the steps of a file's lines as text: "1 2 3 ".
static const char *steps_of(arena *a, const char *name)
{
    char path[160], *bytes = NULL;
    int64_t count = 0;
    text t = {.a = a};
    (void)snprintf(path, sizeof(path), "%s/rotated/%s", folder, name);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &bytes, &count), ST_OK);
    assert_int_equal(text_add(&t, "%s", ""), ST_OK);
    for (char *line = bytes; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *digits = line + strlen("{\"step\": ");
        assert_int_equal(text_add(&t, "%.*s ", (int)strcspn(digits, ","), digits), ST_OK);
    }
    return t.bytes;
}

// Full files get names of their own; a resumed run goes on in the one that has its last step.
static void metrics_are_rotated(void **state)
{
    (void)state;
    arena *a = NULL;
    obs_metrics *m = NULL;
    char path[160], within[128];
    file_names names;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    (void)snprintf(within, sizeof(within), "%s/rotated", folder);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), within), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", within);
    text line = {.a = a};
    const obs_record one = record_of(1);
    assert_int_equal(obs_print_json(&one, &line), ST_OK);
    obs_metrics_config c = {
        .path = path, .finished_steps = 0, .limit_bytes = line.length * 5 / 2}; // three lines
    static const int64_t finished[] = {0, 5, 3}, last[] = {8, 5, 4};
    static const char *const newest[] = {"7 8 ", "4 5 ", "4 "};
    for (int i = 0; i < COUNT_OF(finished); i++) {
        c.finished_steps = finished[i];
        assert_int_equal(obs_metrics_open(host_real(), a, &c, &m), ST_OK);
        for (int64_t step = finished[i] + 1; step <= last[i]; step++) {
            const obs_record r = record_of(step);
            assert_int_equal(obs_metrics_add(m, &r), ST_OK);
        }
        assert_int_equal(obs_metrics_close(m), ST_OK);
        assert_string_equal(steps_of(a, "metrics.jsonl"), newest[i]);
        assert_string_equal(steps_of(a, "metrics-0000003.jsonl"), "1 2 3 ");
        assert_int_equal(host_real()->api->path_list(host_real(), a, within, &names), ST_OK);
        assert_int_equal(names.count, i == 0 ? 3 : 2);
    }
    arena_destroy(a);
}

// The file cannot grow past the middle of a line; later it can.
static void a_line_that_failed_leaves_nothing(void **state)
{
    (void)state;
    arena *a = NULL;
    obs_metrics *m = NULL;
    char path[128], *bytes = NULL;
    int64_t count = 0, lines = 0;
    obs_record r = record_of(1);
    struct rlimit limit;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/torn.jsonl", folder);
    assert_int_equal(obs_metrics_open(host_real(), a, &(obs_metrics_config){path, 0, 0}, &m),
                     ST_OK);
    assert_int_equal(obs_metrics_add(m, &r), ST_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    file_info info;
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    limit.rlim_cur = (rlim_t)info.bytes + 50;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    r.step = 2;
    const status st = obs_metrics_add(m, &r);
    limit.rlim_cur = before;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(st, ST_IO);
    r.step = 3;
    assert_int_equal(obs_metrics_add(m, &r), ST_OK);
    assert_int_equal(obs_metrics_close(m), ST_OK);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 20, &bytes, &count), ST_OK);
    for (const char *line = bytes; *line != '\0'; line = strchr(line, '\n') + 1) {
        lines++;
        assert_int_equal(strncmp(line, lines == 1 ? "{\"step\": 1," : "{\"step\": 3,", 11), 0);
    }
    assert_int_equal(lines, 2);
    arena_destroy(a);
}

static void live_lines_fit(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int columns = 20; columns <= 120; columns += 10) {
        text t = {.a = a};
        const obs_record r = record_of(1234);
        assert_int_equal(obs_print_live(&r, columns, &t), ST_OK);
        assert_true(t.length < columns);
    }
    arena_destroy(a);
}

static int make_folder(void **state)
{
    (void)state;
    return test_scratch(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_has_its_published_value),
        cmocka_unit_test(events_can_be_read),
        cmocka_unit_test(lines_fit_their_columns),
        cmocka_unit_test(metrics_are_cut_back),
        cmocka_unit_test(goodput_is_continued),
        cmocka_unit_test(metrics_are_rotated),
        cmocka_unit_test(a_line_that_failed_leaves_nothing),
        cmocka_unit_test(live_lines_fit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
