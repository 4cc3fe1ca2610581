// The real host: whole reads and writes, refusals, faults at every point, atomic replacement.
#include "base/fault.h"
#include "base/host.h"
#include "fixtures/base/test_paths.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    const host *h;
    arena *a;
    char folder[64];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    if (f == NULL || test_scratch(f->folder) == NULL) return -1;
    f->h = host_real();
    *state = f;
    return arena_create("test", 0, &f->a) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    test_scratch_remove(f->folder);
    arena_destroy(f->a);
    free(f);
    return 0;
}

static char *path_of(const fixture *f, const char *name)
{
    char *path;
    assert_int_equal(path_join(f->a, f->folder, name, &path), ST_OK);
    return path;
}

static void expect_text(const fixture *f, const char *path, const char *want)
{
    char *text;
    int64_t bytes;
    assert_int_equal(host_read_all(f->h, f->a, path, 1 << 20, &text, &bytes), ST_OK);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(text, want);
}

static void files_are_written_and_read(void **state)
{
    const fixture *f = *state;
    const host_api *api = f->h->api;
    const char *path = path_of(f, "a");
    file *out;
    assert_int_equal(api->file_open(f->h, path, FILE_CREATE, &out), ST_OK);
    assert_int_equal(api->file_write(out, "hello", 5), ST_OK);
    assert_int_equal(api->file_write(out, "", 0), ST_OK);
    assert_int_equal(api->file_write(out, " world", 6), ST_OK);
    assert_int_equal(api->file_sync(out), ST_OK);
    assert_int_equal(api->file_close(out), ST_OK);
    expect_text(f, path, "hello world");

    assert_int_equal(api->file_open(f->h, path, FILE_CREATE, &out), ST_IO); // exists
    assert_non_null(strstr(error_last()->text, path));
    assert_int_equal(api->file_open(f->h, path, FILE_APPEND, &out), ST_OK);
    assert_int_equal(api->file_write(out, "!", 1), ST_OK);
    assert_int_equal(api->file_close(out), ST_OK);
    expect_text(f, path, "hello world!");
    assert_int_equal(api->file_open(f->h, path, FILE_APPEND, &out), ST_OK);
    assert_int_equal(api->file_truncate(out, 5), ST_OK);
    assert_int_equal(api->file_close(out), ST_OK);
    expect_text(f, path, "hello");
    assert_int_equal(api->file_open(f->h, path, FILE_WRITE, &out), ST_OK);
    assert_int_equal(api->file_close(out), ST_OK);
    expect_text(f, path, "");
    assert_int_equal(api->file_close(NULL), ST_OK);
}

static void reads_are_whole_or_fail(void **state)
{
    const fixture *f = *state;
    const host_api *api = f->h->api;
    const char *path = path_of(f, "a");
    char buffer[16] = {0};
    const void *map;
    int64_t bytes;
    file *in;
    assert_int_equal(host_write_all(f->h, path, "0123456789", 10), ST_OK);
    assert_int_equal(api->file_open(f->h, path, FILE_READ, &in), ST_OK);
    assert_int_equal(api->file_read(in, 3, buffer, 4), ST_OK);
    assert_string_equal(buffer, "3456");
    assert_int_equal(api->file_read(in, 10, buffer, 0), ST_OK);
    assert_int_equal(api->file_read(in, 8, buffer, 4), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "ends at byte 10"));
    assert_int_equal(api->file_size(in, &bytes), ST_OK);
    assert_int_equal(bytes, 10);
    for (int i = 0; i < 2; i++) { // every call returns the same view
        assert_int_equal(api->file_map(in, &map, &bytes), ST_OK);
        assert_int_equal(bytes, 10);
        assert_memory_equal(map, "0123456789", 10);
    }
    assert_int_equal(api->file_close(in), ST_OK);

    assert_int_equal(host_write_all(f->h, path, "", 0), ST_OK);
    assert_int_equal(api->file_open(f->h, path, FILE_READ, &in), ST_OK);
    assert_int_equal(api->file_map(in, &map, &bytes), ST_OK);
    assert_null(map);
    assert_int_equal(bytes, 0);
    assert_int_equal(api->file_close(in), ST_OK);
}

static void only_regular_files_are_read(void **state)
{
    const fixture *f = *state;
    const char *fifo = path_of(f, "fifo");
    file *in;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(f->h->api->file_open(f->h, fifo, FILE_READ, &in), ST_DAMAGED); // no hang
    assert_non_null(strstr(error_last()->text, "a FIFO"));
    assert_int_equal(f->h->api->file_open(f->h, f->folder, FILE_READ, &in), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "a folder"));
    assert_int_equal(f->h->api->file_open(f->h, "/dev/zero", FILE_READ, &in), ST_DAMAGED);
    // A FIFO without a reader blocked the process that opened it for writing: metrics.jsonl made a
    // run hang.
    const file_mode writes[] = {FILE_WRITE, FILE_APPEND};
    for (int64_t i = 0; i < COUNT_OF(writes); i++) {
        assert_int_equal(f->h->api->file_open(f->h, fifo, writes[i], &in), ST_IO);
        const int reader = open(fifo, O_RDONLY | O_NONBLOCK);
        assert_true(reader >= 0);
        assert_int_equal(f->h->api->file_open(f->h, fifo, writes[i], &in), ST_IO);
        assert_int_equal(close(reader), 0);
    }
    assert_int_equal(f->h->api->file_open(f->h, path_of(f, "none"), FILE_READ, &in), ST_NOT_FOUND);
    assert_int_equal(f->h->api->file_open(f->h, path_of(f, "no/ne"), FILE_WRITE, &in),
                     ST_NOT_FOUND);
}

static void a_full_disk_is_told(void **state)
{
    const fixture *f = *state;
    file *out;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(f->h->api->file_open(f->h, "/dev/full", FILE_WRITE, &out), ST_OK);
    assert_int_equal(f->h->api->file_write(out, "x", 1), ST_DISK_FULL);
    assert_int_equal(f->h->api->file_close(out), ST_OK);
}

static void whole_files_have_limits(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "a");
    char *text;
    int64_t bytes;
    assert_int_equal(host_write_all(f->h, path, "12345", 5), ST_OK);
    const int64_t before = arena_used_bytes(f->a);
    assert_int_equal(host_read_all(f->h, f->a, path, 4, &text, &bytes), ST_DAMAGED);
    assert_int_equal(arena_used_bytes(f->a), before);
    assert_int_equal(host_read_all(f->h, f->a, path, 5, &text, &bytes), ST_OK);
}

// After any failure the file holds the old or the new content in full, and no temporary file stays.
static void replacement_is_atomic(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "a");
    for (int hit = 1;; hit++) {
        char plan[32];
        assert_int_equal(host_write_all(f->h, path, "old", 3), ST_OK);
        snprintf(plan, sizeof(plan), "*=%d:DISK_FULL", hit);
        assert_int_equal(fault_arm(plan), ST_OK);
        const status st = host_write_all(f->h, path, "newer", 5);
        assert_int_equal(fault_arm(NULL), ST_OK);
        if (st == ST_OK) {
            assert_true(hit > 6);
            expect_text(f, path, "newer");
            break;
        }
        assert_true(st == ST_DISK_FULL || st == ST_NO_MEMORY);
        char *text;
        int64_t bytes;
        assert_int_equal(host_read_all(f->h, f->a, path, 100, &text, &bytes), ST_OK);
        assert_true(strcmp(text, "old") == 0 || strcmp(text, "newer") == 0);
        file_names names;
        assert_int_equal(f->h->api->path_list(f->h, f->a, f->folder, &names), ST_OK);
        assert_int_equal(names.count, 1);
    }
}

static void folders(void **state)
{
    const fixture *f = *state;
    const host_api *api = f->h->api;
    file_info info;
    assert_int_equal(api->path_mkdir(f->h, path_of(f, "x/y//z/")), ST_OK);
    assert_int_equal(api->path_mkdir(f->h, path_of(f, "x/y/z")), ST_OK);
    assert_int_equal(api->path_info(f->h, path_of(f, "x/y/z"), &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_FOLDER);
    assert_int_equal(host_write_all(f->h, path_of(f, "x/file"), "abc", 3), ST_OK);
    assert_int_equal(api->path_mkdir(f->h, path_of(f, "x/file")), ST_IO);
    assert_int_equal(api->path_info(f->h, path_of(f, "x/file"), &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_REGULAR);
    assert_int_equal(info.bytes, 3);
    assert_true(info.modified_ns > INT64_C(1500000000) * 1000000000);
    assert_int_equal(api->path_info(f->h, path_of(f, "x/file/below"), &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_NONE);
    assert_int_equal(api->path_info(f->h, path_of(f, "none"), &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_NONE);
    assert_int_equal(api->path_sync(f->h, path_of(f, "x")), ST_OK);
    assert_int_equal(api->path_sync(f->h, path_of(f, "none")), ST_NOT_FOUND);
    assert_int_not_equal(api->path_remove(f->h, path_of(f, "x")), ST_OK); // not empty
    assert_int_equal(api->path_remove(f->h, path_of(f, "x/y/z")), ST_OK);
    assert_int_equal(api->path_remove(f->h, path_of(f, "x/y/z")), ST_NOT_FOUND);
}

static void names_are_sorted_by_bytes(void **state)
{
    const fixture *f = *state;
    const char *const names[] = {"b", "a10", "B", "a9", "\xC3\xA9", "a"};
    const char *const sorted[] = {"B", "a", "a10", "a9", "b", "\xC3\xA9"};
    file_names found;
    assert_int_equal(f->h->api->path_list(f->h, f->a, f->folder, &found), ST_OK);
    assert_int_equal(found.count, 0);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(host_write_all(f->h, path_of(f, names[i]), "", 0), ST_OK);
    }
    assert_int_equal(f->h->api->path_list(f->h, f->a, f->folder, &found), ST_OK);
    assert_int_equal(found.count, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(found.names[i], sorted[i]);
    assert_int_equal(f->h->api->path_glob(f->h, f->a, path_of(f, "a*"), &found), ST_OK);
    assert_int_equal(found.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(path_base_name(found.names[i]), sorted[i + 1]);
    }
    assert_int_equal(f->h->api->path_glob(f->h, f->a, path_of(f, "q*"), &found), ST_OK);
    assert_int_equal(found.count, 0);
    assert_int_equal(f->h->api->path_list(f->h, f->a, path_of(f, "none"), &found), ST_NOT_FOUND);
}

static void links_are_replaced(void **state)
{
    const fixture *f = *state;
    const char *link = path_of(f, "latest");
    char target[64];
    for (int i = 1; i <= 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "step-%d", i);
        assert_int_equal(f->h->api->path_link(f->h, name, link), ST_OK);
        const ssize_t n = readlink(link, target, sizeof(target) - 1);
        assert_int_equal(n, strlen(name));
        assert_memory_equal(target, name, strlen(name));
    }
    file_names found;
    assert_int_equal(f->h->api->path_list(f->h, f->a, f->folder, &found), ST_OK);
    assert_int_equal(found.count, 1);
}

static void faults_leave_no_descriptor(void **state)
{
    const fixture *f = *state;
    const char *const points[] = {"host.open",   "host.read",  "host.write", "host.sync",
                                  "host.rename", "host.mkdir", "arena.alloc"};
    const char *path = path_of(f, "d/a");
    const int before = dup(0);
    close(before);
    for (int64_t p = 0; p < COUNT_OF(points); p++) {
        char plan[40], *text;
        int64_t bytes;
        snprintf(plan, sizeof(plan), "%s=1+", points[p]);
        assert_int_equal(fault_arm(plan), ST_OK);
        const bool all_ok = f->h->api->path_mkdir(f->h, f->folder) == ST_OK &&
                            host_write_all(f->h, path, "x", 1) == ST_OK &&
                            host_read_all(f->h, f->a, path, 9, &text, &bytes) == ST_OK;
        assert_int_equal(fault_arm(NULL), ST_OK);
        assert_false(all_ok);
        assert_int_equal(f->h->api->path_mkdir(f->h, path_of(f, "d")), ST_OK);
        assert_int_equal(host_write_all(f->h, path, "x", 1), ST_OK);
    }
    const int after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

// A lock has one holder at a time; it ends when the holder ends or closes the file.
static void a_lock_has_one_holder(void **state)
{
    const fixture *f = *state;
    const host_api *api = f->h->api;
    char path[128];
    file *first = NULL, *second = NULL;
    bool taken = false;
    (void)snprintf(path, sizeof(path), "%s/lock", f->folder);
    assert_int_equal(api->file_open(f->h, path, FILE_APPEND, &first), ST_OK);
    assert_int_equal(api->file_open(f->h, path, FILE_APPEND, &second), ST_OK);
    assert_int_equal(api->file_lock(first, &taken), ST_OK);
    assert_true(taken);
    assert_int_equal(api->file_lock(second, &taken), ST_OK);
    assert_false(taken);
    assert_int_equal(api->file_close(first), ST_OK);
    assert_int_equal(api->file_lock(second, &taken), ST_OK);
    assert_true(taken);
    assert_int_equal(api->file_close(second), ST_OK);
}

static void clocks_and_randomness(void **state)
{
    const fixture *f = *state;
    const int64_t begin = f->h->api->monotonic_ns(f->h);
    f->h->api->sleep_ns(f->h, 2000000);
    f->h->api->sleep_ns(f->h, -5);
    assert_true(f->h->api->monotonic_ns(f->h) - begin >= 2000000);
    assert_true(f->h->api->unix_ns(f->h) > INT64_C(1600000000) * 1000000000);
    unsigned char a[1000], b[1000];
    assert_int_equal(f->h->api->random_fill(f->h, a, sizeof(a)), ST_OK);
    assert_int_equal(f->h->api->random_fill(f->h, b, sizeof(b)), ST_OK);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a + 900, b + 900, 100);
}

static void paths_are_joined(void **state)
{
    const fixture *f = *state;
    const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"},    {"a", "/b", "/b"},
        {"/", "b", "/b"},  {"a", "", "a"},     {".", "b", "./b"}, {"a/b", "c/d", "a/b/c/d"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        char *path;
        assert_int_equal(path_join(f->a, cases[i][0], cases[i][1], &path), ST_OK);
        assert_string_equal(path, cases[i][2]);
    }
    assert_string_equal(path_base_name("a/b"), "b");
    assert_string_equal(path_base_name("b"), "b");
    assert_string_equal(path_base_name("a/"), "");
}

static void memory_is_told(void **state)
{
    const fixture *f = *state;
    const int64_t free_now = host_memory_bytes(f->h), installed = host_memory_installed(f->h);
    assert_true(free_now > 0 && free_now <= installed);
    assert_int_equal(host_memory_installed(f->h),
                     installed); // independent of the caller and the time
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(memory_is_told),
        CASE(files_are_written_and_read),
        CASE(reads_are_whole_or_fail),
        CASE(only_regular_files_are_read),
        CASE(a_full_disk_is_told),
        CASE(whole_files_have_limits),
        CASE(replacement_is_atomic),
        CASE(folders),
        CASE(names_are_sorted_by_bytes),
        CASE(links_are_replaced),
        CASE(faults_leave_no_descriptor),
        CASE(a_lock_has_one_holder),
        CASE(clocks_and_randomness),
        CASE(paths_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
