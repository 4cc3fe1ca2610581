// safetensors: hostile headers one by one, round trips through the writer, reference files, and a
// failure at every point.
#include "base/fault.h"
#include "base/format/safetensors.h"
#include "base/format/safetensors_internal.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// A whole file in memory: length, header, `data` zero bytes. claim < 0: the true length.
static int64_t build(unsigned char *out, const char *header, int64_t claim, int64_t data)
{
    const int64_t length = (int64_t)strlen(header);
    const uint64_t n = (uint64_t)(claim < 0 ? length : claim);
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> (8 * i));
    memcpy(out + 8, header, (size_t)length);
    memset(out + 8 + length, 0, (size_t)data);
    return 8 + length + data;
}

static status parse(const char *header, int64_t claim, int64_t data, safetensors_file *f, arena *a)
{
    unsigned char *bytes = malloc(strlen(header) + 8 + (size_t)data + 8);
    assert_non_null(bytes);
    const int64_t count = build(bytes, header, claim, data);
    // An exact copy, so that the sanitizer sees a byte read behind the end.
    unsigned char *exact = malloc((size_t)count);
    assert_non_null(exact);
    memcpy(exact, bytes, (size_t)count);
    const status st = safetensors_parse(a, exact, count, "t", f);
    free(exact);
    free(bytes);
    return st;
}

#define T(shape, begin, end) \
    "{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

typedef struct hostile {
    const char *header;
    int64_t claim; // -1: true
    int64_t data;
    const char *complaint; // part of the text
} hostile;

static const hostile hostile_headers[] = {
    {"{}", INT64_MAX, 0, "at most 100000000"},
    {"{}", 100000001, 0, "at most 100000000"},
    {"{}", 100000000, 0, "cut short"},
    {"{}", 3, 0, "cut short"},
    {"{}", INT64_C(1) << 31, 0, "at most"},
    {"{}", INT64_C(1) << 62, 0, "at most"},
    {"{}", 0, 2, "does not start with '{'"},
    {"{}", 1, 1, "does not start with '{'"},
    {" {}", -1, 0, "does not start with '{'"},
    {"[]", -1, 0, "does not start with '{'"},
    {"\x89PNG", -1, 0, "does not start with '{'"},
    {"{", -1, 0, "start with '{'"},
    {"{\"a\"", -1, 0, "':' expected"},
    {"{}x", -1, 0, "nothing after"},
    {"{} {}", -1, 0, "nothing after"},
    {"{}", -1, 1, "end at byte 0 of the data, which has 1"},
    {"{\"a\":1}", -1, 0, "not a map"},
    {"{\"a\":null}", -1, 0, "not a map"},
    {"{\"a\":{}}", -1, 0, "no \"dtype\""},
    {"{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}", -1, 4, "no \"dtype\""},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "\"F4\" is unknown"},
    {"{\"a\":{\"dtype\":\"fp32\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "is unknown"},
    {"{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "is unknown"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", -1, 4, "\"shape\" is not a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", -1, 4, "is not a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":{\"0\":1},\"data_offsets\":[0,4]}}", -1, 4, "not a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, "\"data_offsets\" is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", -1, 4, "two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", -1, 4, "two whole"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", -1, 4, "two whole"},
    {"{\"a\":" T("-1", "0", "4") "}", -1, 4, "dim 0 is not a whole number"},
    {"{\"a\":" T("1.0", "0", "4") "}", -1, 4, "dim 0"},
    {"{\"a\":" T("\"1\"", "0", "4") "}", -1, 4, "dim 0"},
    {"{\"a\":" T("1,9223372036854775808", "0", "4") "}", -1, 4, "dim 1"},
    {"{\"a\":" T("18446744073709551617", "0", "4") "}", -1, 4, "dim 0"},
    {"{\"a\":" T("9223372036854775807", "0", "4") "}", -1, 4, "overflows"},
    {"{\"a\":" T("2147483648,2147483648", "0", "0") "}", -1, 0, "overflows"},
    {"{\"a\":" T("4611686018427387905", "0", "4") "}", -1, 4, "overflows"},
    {"{\"a\":" T("4294967296,4294967296,0", "0", "0") "}", -1, 0, "overflows"},
    {"{\"a\":" T("1,1,1,1,1,1,1,1,1", "0", "4") "}", -1, 4, "9 dims"},
    {"{\"a\":" T("2147483648", "0", "4") "}", -1, 4, "take 8589934592 bytes"},
    {"{\"a\":" T("1", "-4", "0") "}", -1, 4, "do not lie in"},
    {"{\"a\":" T("1", "4", "0") "}", -1, 4, "do not lie in"},
    {"{\"a\":" T("1", "0", "8") "}", -1, 4, "do not lie in"},
    {"{\"a\":" T("1", "0", "9223372036854775807") "}", -1, 4, "do not lie in"},
    {"{\"a\":" T("1", "0", "9223372036854775808") "}", -1, 4, "two whole numbers"},
    {"{\"a\":" T("1", "1e0", "5") "}", -1, 8, "two whole numbers"},
    {"{\"a\":" T("1", "2147483648", "2147483652") "}", -1, 4, "do not lie in"},
    {"{\"a\":" T("2", "0", "4") "}", -1, 4, "its offsets hold 4"},
    {"{\"a\":" T("0", "0", "4") "}", -1, 4, "its offsets hold 4"},
    {"{\"a\":" T("1", "0", "4") "}", -1, 8, "end at byte 4"},
    {"{\"a\":" T("1", "4", "8") "}", -1, 8, "leave a hole"},
    {"{\"a\":" T("1", "0", "4") ",\"b\":" T("1", "8", "12") "}", -1, 12, "leave a hole"},
    {"{\"a\":" T("1", "0", "4") ",\"b\":" T("1", "0", "4") "}", -1, 4, "overlap"},
    {"{\"a\":" T("2", "0", "8") ",\"b\":" T("2", "4", "12") "}", -1, 12, "overlap"},
    {"{\"a\":" T("2", "0", "8") ",\"b\":" T("0", "4", "4") "}", -1, 8, "overlap"},
    {"{\"a\":" T("1", "0", "4") ",\"a\":" T("1", "4", "8") "}", -1, 8, "twice"},
    {"{\"a\":" T("1", "0", "4") ",\"\\u0061\":" T("1", "4", "8") "}", -1, 8, "twice"},
    {"{\"\":" T("1", "0", "4") "}", -1, 4, "name has 0 bytes"},
    {"{\"a\\u0000b\":" T("1", "0", "4") "}", -1, 4, "no NUL in a key"},
    {"{\"\xFF\":" T("1", "0", "4") "}", -1, 4, "UTF-8"},
    {"{\"__metadata__\":[]}", -1, 0, "not a map of texts"},
    {"{\"__metadata__\":{\"a\":1}}", -1, 0, "is not a text"},
    {"{\"__metadata__\":{\"a\":{}}}", -1, 0, "is not a text"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", -1, 0, "twice"},
};

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    assert_true(COUNT_OF(hostile_headers) > 40);
    for (int64_t i = 0; i < COUNT_OF(hostile_headers); i++) {
        const hostile *h = &hostile_headers[i];
        safetensors_file f;
        arena *a;
        assert_int_equal(arena_create("test", 1 << 20, &a), ST_OK);
        const status st = parse(h->header, h->claim, h->data, &f, a);
        if (st != ST_DAMAGED || strstr(error_last()->text, h->complaint) == NULL) {
            fail_msg("%s: %s: %s", h->header, status_name(st), error_last()->text);
        }
        arena_destroy(a);
    }
}

static void files_too_short_for_a_length(void **state)
{
    (void)state;
    safetensors_file f;
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int64_t n = 0; n < 8; n++) {
        assert_int_equal(safetensors_parse(a, "\2\0\0\0\0\0\0\0", n, "t", &f), ST_DAMAGED);
    }
    arena_destroy(a);
}

static void long_names_and_depth(void **state)
{
    (void)state;
    static char header[3000];
    safetensors_file f;
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int length = 1024; length <= 1025; length++) {
        char name[1100];
        memset(name, 'n', sizeof(name));
        name[length] = '\0';
        snprintf(header, sizeof(header), "{\"%s\":" T("1", "0", "4") "}", name);
        assert_int_equal(parse(header, -1, 4, &f, a) == ST_OK, length == 1024);
    }
    memset(header, '[', 2000);
    memcpy(header, "{\"a\":", 5);
    header[2000] = '\0';
    assert_int_equal(parse(header, -1, 0, &f, a), ST_DAMAGED);
    arena_destroy(a);
}

static void good_headers_are_read(void **state)
{
    (void)state;
    safetensors_file f;
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(parse("{}", -1, 0, &f, a), ST_OK);
    assert_int_equal(f.count, 0);
    assert_int_equal(parse("{}      ", -1, 0, &f, a), ST_OK);
    // Scalars, empty tensors at a boundary, any order of names, unknown keys.
    assert_int_equal(
        parse(
            "{\"b\":" T("", "4", "8") ",\"__metadata__\":{\"format\":\"pt\"},\"a\":" T(
                "1,1,1,1,1,1,1,1", "0",
                "4") ",\"e\":" T("3,0", "4",
                                 "4") ",\"c\":{\"new\":[1],\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[8,"
                                      "10]}}",
            -1, 10, &f, a),
        ST_OK);
    assert_int_equal(f.count, 4);
    assert_string_equal(f.entries[0].name, "a");
    assert_int_equal(f.entries[0].ndim, 8);
    assert_int_equal(safetensors_search(f.entries, f.count, "b")->ndim, 0);
    assert_int_equal(safetensors_search(f.entries, f.count, "b")->bytes, 4);
    assert_int_equal(safetensors_search(f.entries, f.count, "e")->bytes, 0);
    assert_null(safetensors_search(f.entries, f.count, "d"));
    assert_int_equal(f.metadata_count, 1);
    assert_string_equal(f.metadata[0].value, "pt");
    arena_destroy(a);
}

// --- files -----------------------------------------------------------------------------------

typedef struct fixture {
    arena *a;
    char folder[64];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    if (f == NULL || test_scratch(f->folder) == NULL) return -1;
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

static const char *path_of(const fixture *f, const char *name)
{
    char *path;
    assert_int_equal(path_join(f->a, f->folder, name, &path), ST_OK);
    return path;
}

static void put_file(const fixture *f, const char *name, const char *text)
{
    assert_int_equal(host_write_all(host_real(), path_of(f, name), text, (int64_t)strlen(text)),
                     ST_OK);
}

// One tensor of each type, of `count` elements that count up from `first`.
static status write_all_types(const char *path, int64_t count)
{
    safetensors_writer *w;
    status st;
    TRY(safetensors_writer_create(host_real(), path, &w));
    TRY_TO(destroy, safetensors_writer_metadata(w, "format", "pt"));
    TRY_TO(destroy, safetensors_writer_metadata(w, "quote\"\n", "\xE2\x82\xAC"));
    for (int i = DTYPE_COUNT - 1; i >= 0; i--) {
        const int64_t dims[2] = {count, 1};
        TRY_TO(destroy, safetensors_writer_declare(w, dtype_name((dtype)i), (dtype)i, i % 3, dims));
    }
    for (int i = DTYPE_COUNT - 1; i >= 0; i--) {
        char bytes[8 * 100] = {0};
        const int64_t n = i % 3 == 0 ? 1 : count, size = n * dtype_bytes((dtype)i);
        for (int64_t k = 0; k < n; k++) dtype_store((dtype)i, bytes, k, (double)(k % 8));
        // In pieces that match no boundary.
        for (int64_t at = 0; at < size; at += 7) {
            TRY_TO(destroy, safetensors_writer_put(w, bytes + at, min_i64(7, size - at)));
        }
    }
    st = safetensors_writer_finish(w);
destroy:
    safetensors_writer_destroy(w);
    return st;
}

static void every_type_round_trips(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "a.safetensors");
    safetensors *s;
    assert_int_equal(write_all_types(path, 33), ST_OK);
    assert_int_equal(safetensors_open_mapped(host_real(), path, &s), ST_OK);
    assert_int_equal(safetensors_count(s), DTYPE_COUNT);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_string_equal(safetensors_metadata(s, "quote\"\n"), "\xE2\x82\xAC");
    assert_null(safetensors_metadata(s, "none"));
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const safetensors_entry *e = safetensors_find(s, dtype_name((dtype)i));
        assert_non_null(e);
        assert_int_equal(e->type, i);
        assert_int_equal(e->ndim, i % 3);
        if (i == DTYPE_COUNT - 1) assert_int_equal(e->begin % 64, 0); // first of the data
        const int64_t n = i % 3 == 0 ? 1 : 33;
        assert_int_equal(e->bytes, n * dtype_bytes((dtype)i));
        for (int64_t k = 0; k < n; k++) {
            const double want = i == DTYPE_BOOL ? k % 8 != 0 : (double)(k % 8);
            assert_true(dtype_load((dtype)i, e->data, k) == want);
        }
        if (i > 0) {
            assert_true(strcmp(safetensors_at(s, i - 1)->name, safetensors_at(s, i)->name) < 0);
        }
    }
    assert_null(safetensors_at(s, -1));
    assert_null(safetensors_at(s, DTYPE_COUNT));
    safetensors_close(s);
    safetensors_close(NULL);
}

static void an_empty_file_round_trips(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "empty.safetensors");
    safetensors_writer *w;
    safetensors *s;
    assert_int_equal(safetensors_writer_create(host_real(), path, &w), ST_OK);
    assert_int_equal(safetensors_writer_finish(w), ST_OK);
    safetensors_writer_destroy(w);
    assert_int_equal(safetensors_open_mapped(host_real(), path, &s), ST_OK);
    assert_int_equal(safetensors_count(s), 0);
    assert_null(safetensors_find(s, "a"));
    safetensors_close(s);
}

static void the_writer_checks_its_caller(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "w.safetensors");
    const int64_t dims[9] = {2, 1, 1, 1, 1, 1, 1, 1, 1}, negative[1] = {-1},
                  huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    safetensors_writer *w;
    file_info info;
    assert_int_equal(safetensors_writer_create(host_real(), path, &w), ST_OK);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 9, dims), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "", DTYPE_F32, 1, dims), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 1, negative), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 2, huge), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "__metadata__", DTYPE_U8, 1, dims), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "\xFF", DTYPE_U8, 1, dims), ST_INTERNAL);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 1, dims), ST_OK);
    assert_int_equal(safetensors_writer_put(w, dims, 9), ST_INTERNAL); // too many
    assert_int_equal(safetensors_writer_put(w, dims, 4), ST_OK);
    assert_int_equal(safetensors_writer_declare(w, "b", DTYPE_F32, 1, dims), ST_INTERNAL);
    assert_int_equal(safetensors_writer_metadata(w, "b", "c"), ST_INTERNAL);
    assert_int_equal(safetensors_writer_finish(w), ST_INTERNAL); // too few
    safetensors_writer_destroy(w);
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_NONE); // abandoned: no file stays

    assert_int_equal(safetensors_writer_create(host_real(), path, &w), ST_OK);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 1, dims), ST_OK);
    assert_int_equal(safetensors_writer_declare(w, "a", DTYPE_F32, 1, dims), ST_OK);
    assert_int_equal(safetensors_writer_put(w, dims, 8), ST_INTERNAL); // a name twice
    safetensors_writer_destroy(w);
}

static const char *const index_cases[][3] = {
    // weight_map, status, complaint
    {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "SECURITY", "../x.safetensors"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "SECURITY", "/etc/passwd"},
    {"{\"weight_map\":{\"a\":\"sub/x.safetensors\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\"..\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\".hidden\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\"\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\"x\\ny\"}}", "SECURITY", "plain names"},
    {"{\"weight_map\":{\"a\":\"one.safetensors\\u0000\"}}", "DAMAGED", "not a text"},
    {"{\"weight_map\":{\"a\":3}}", "DAMAGED", "not a text"},
    {"{\"weight_map\":[]}", "DAMAGED", "no \"weight_map\""},
    {"{}", "DAMAGED", "no \"weight_map\""},
    {"[]", "DAMAGED", "no \"weight_map\""},
    {"{\"weight_map\":", "DAMAGED", "a value expected"},
    {"{\"weight_map\":{\"a\":\"missing.safetensors\"}}", "DAMAGED", "missing.safetensors"},
    {"{\"weight_map\":{\"nowhere\":\"one.safetensors\"}}", "DAMAGED", "nowhere is not in"},
    {"{\"weight_map\":{\"a\":\"broken.safetensors\"}}", "DAMAGED", "broken.safetensors"},
    {"{\"weight_map\":{\"a\":\"folder.safetensors\"}}", "DAMAGED", "a folder"},
};

static void indexes_stay_in_their_folder(void **state)
{
    const fixture *f = *state;
    assert_int_equal(write_all_types(path_of(f, "one.safetensors"), 3), ST_OK);
    put_file(f, "broken.safetensors", "not safetensors at all");
    assert_int_equal(host_real()->api->path_mkdir(host_real(), path_of(f, "folder.safetensors")),
                     ST_OK);
    for (int64_t i = 0; i < COUNT_OF(index_cases); i++) {
        safetensors *s = NULL;
        put_file(f, "model.safetensors.index.json", index_cases[i][0]);
        const status st = safetensors_open(host_real(), f->folder, &s);
        if (strcmp(status_name(st), index_cases[i][1]) != 0 ||
            strstr(error_last()->text, index_cases[i][2]) == NULL) {
            fail_msg("%s: %s: %s", index_cases[i][0], status_name(st), error_last()->text);
        }
        assert_null(s);
    }
    safetensors *s;
    put_file(f, "model.safetensors.index.json",
             "{\"metadata\":{},\"weight_map\":{\"int8\":\"one.safetensors\"}}");
    assert_int_equal(safetensors_open(host_real(), f->folder, &s), ST_OK);
    assert_int_equal(safetensors_count(s), 1); // the index decides
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    safetensors_close(s);
}

static void folders_without_a_model(void **state)
{
    const fixture *f = *state;
    safetensors *s;
    assert_int_equal(safetensors_open(host_real(), f->folder, &s), ST_NOT_FOUND);
    assert_non_null(strstr(error_last()->text, "neither model.safetensors nor"));
    assert_int_equal(safetensors_open(host_real(), path_of(f, "none"), &s), ST_NOT_FOUND);
    put_file(f, "x.safetensors", "");
    assert_int_equal(safetensors_open(host_real(), path_of(f, "x.safetensors"), &s), ST_DAMAGED);
}

static void every_failure_is_clean(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "a.safetensors"), *second = path_of(f, "b.safetensors");
    assert_int_equal(write_all_types(path, 3), ST_OK);
    put_file(f, "model.safetensors.index.json", "{\"weight_map\":{\"bf16\":\"a.safetensors\"}}");
    for (int hit = 1;; hit++) {
        char plan[32];
        safetensors *s = NULL;
        snprintf(plan, sizeof(plan), "*=%d", hit);
        assert_int_equal(fault_arm(plan), ST_OK);
        const status st = safetensors_open(host_real(), f->folder, &s);
        assert_int_equal(fault_arm(NULL), ST_OK);
        safetensors_close(s);
        if (st == ST_OK) break;
        assert_null(s);
        assert_true(hit < 1000);
    }
    for (int hit = 1;; hit++) {
        char plan[32];
        file_info info;
        snprintf(plan, sizeof(plan), "*=%d", hit);
        assert_int_equal(fault_arm(plan), ST_OK);
        const status st = write_all_types(second, 3);
        assert_int_equal(fault_arm(NULL), ST_OK);
        if (st == ST_OK) break;
        assert_int_equal(host_real()->api->path_info(host_real(), second, &info), ST_OK);
        assert_int_equal(info.kind, FILE_KIND_NONE);
        assert_true(hit < 1000);
    }
}

static void expect_open(const char *path, status wanted, const char *words)
{
    safetensors *s = NULL;
    error_clear();
    const status st = safetensors_open(host_real(), path, &s);
    if (st != wanted || strstr(error_last()->text, words) == NULL) {
        fail_msg("%s: %s: %s", path, status_name(st), error_last()->text);
    }
    safetensors_close(s);
}

// A link in a model's folder could name any file that the user may read. In a Hugging Face cache
// all files are links, into blobs/ of the same model.
static void links_lead_nowhere_else(void **state)
{
    const fixture *f = *state;
    const char *index = "{\"weight_map\":{\"bf16\":\"one.safetensors\"}}";
    static const struct {
        const char *target;
        status wanted;
    } rows[] = {
        {"../../blobs/0123abcd", ST_OK},
        {"../../blobs/none", ST_SECURITY},
        {"../../blobs/../../../outside", ST_SECURITY},
        {"../../blobs/..", ST_SECURITY},
        {"../../blobs/link", ST_SECURITY}, // a second link
        {"../../outside", ST_SECURITY},
        {"/etc/passwd", ST_SECURITY},
        {"real.safetensors", ST_SECURITY},
    };
    char snapshot[128];
    const host_api *api = host_real()->api;
    snprintf(snapshot, sizeof(snapshot), "%s/m/snapshots/1", f->folder);
    assert_int_equal(api->path_mkdir(host_real(), snapshot), ST_OK);
    assert_int_equal(api->path_mkdir(host_real(), path_of(f, "m/blobs")), ST_OK);
    assert_int_equal(write_all_types(path_of(f, "m/blobs/0123abcd"), 3), ST_OK);
    assert_int_equal(write_all_types(path_of(f, "m/outside"), 3), ST_OK);
    assert_int_equal(write_all_types(path_of(f, "m/snapshots/1/real.safetensors"), 3), ST_OK);
    assert_int_equal(api->path_link(host_real(), "../outside", path_of(f, "m/blobs/link")), ST_OK);
    put_file(f, "m/snapshots/1/model.safetensors.index.json", index);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *link = path_of(f, "m/snapshots/1/one.safetensors");
        assert_int_equal(api->path_link(host_real(), rows[i].target, link), ST_OK);
        const char *words = rows[i].wanted == ST_OK ? "" : "one.safetensors: is a symbolic link";
        expect_open(snapshot, rows[i].wanted, words);
        if (strcmp(rows[i].target, "../../blobs/..") != 0) expect_open(link, rows[i].wanted, words);
    }
    // The path of the folder may itself contain a link, because the user wrote it.
    assert_int_equal(api->path_link(host_real(), "../../blobs/0123abcd",
                                    path_of(f, "m/snapshots/1/one.safetensors")),
                     ST_OK);
    assert_int_equal(api->path_link(host_real(), "m/snapshots", path_of(f, "here")), ST_OK);
    expect_open(path_of(f, "here/1"), ST_OK, "");
    // blobs/ must not be a link.
    assert_int_equal(api->path_rename(host_real(), path_of(f, "m/blobs"), path_of(f, "m/b")),
                     ST_OK);
    assert_int_equal(api->path_link(host_real(), "b", path_of(f, "m/blobs")), ST_OK);
    expect_open(snapshot, ST_SECURITY, "is a symbolic link");
}

static void a_file_that_is_cut_while_it_is_read(void **state)
{
    const fixture *f = *state;
    const char *path = path_of(f, "cut.safetensors");
    safetensors *s = NULL;
    unsigned char bytes[256];
    assert_int_equal(write_all_types(path, 3), ST_OK);
    assert_int_equal(safetensors_open(host_real(), path, &s), ST_OK);
    const safetensors_entry *e = safetensors_find(s, "fp32");
    assert_non_null(e);
    assert_null(e->data);
    assert_true(e->bytes >= 4 && e->bytes <= COUNT_OF(bytes));
    assert_int_equal(safetensors_read(s, e, 0, bytes, e->bytes), ST_OK);
    assert_int_equal(truncate(path, e->begin + 2), 0);
    assert_int_equal(safetensors_read(s, e, 0, bytes, 2), ST_OK);
    assert_int_equal(safetensors_read(s, e, 0, bytes, e->bytes), ST_DAMAGED);
    char words[64];
    snprintf(words, sizeof(words), "cut.safetensors: ends at byte %lld", (long long)e->begin + 2);
    assert_non_null(strstr(error_last()->text, words));
    assert_non_null(strstr(error_last()->text, "tensor fp32"));
    safetensors_close(s);
}

static void reference_models_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        const char *tensor;
        dtype type;
    } models[] = {
        {"gpt2", "transformer.wte.weight", DTYPE_F32},
        {"llama_gqa", "lm_head.weight", DTYPE_F32},
        {"llama_sharded", "model.embed_tokens.weight", DTYPE_F32},
        {"llama_tied_bf16", "model.embed_tokens.weight", DTYPE_BF16},
    };
    char path[1024], name[128];
    for (int64_t i = 0; i < COUNT_OF(models); i++) {
        safetensors *s;
        snprintf(name, sizeof(name), "golden/models/%s", models[i].folder);
        if (safetensors_open(host_real(), test_shared(name, path), &s) != ST_OK) {
            if (error_last()->code != ST_NOT_FOUND) fail_msg("%s", error_last()->text);
            printf("skipped, no reference data: %s\n", error_last()->text);
            skip();
        }
        const safetensors_entry *e = safetensors_find(s, models[i].tensor);
        assert_non_null(e);
        assert_int_equal(e->type, models[i].type);
        assert_int_equal(e->ndim, 2);
        int files = 0;
        for (int64_t k = 0; k < safetensors_count(s); k++) {
            const safetensors_entry *at = safetensors_at(s, k);
            assert_ptr_equal(safetensors_find(s, at->name), at);
            if (at->file_idx + 1 > files) files = at->file_idx + 1;
        }
        assert_int_equal(files, strcmp(models[i].folder, "llama_sharded") == 0 ? 3 : 1);
        safetensors_close(s);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(files_too_short_for_a_length),
        cmocka_unit_test(long_names_and_depth),
        cmocka_unit_test(good_headers_are_read),
        CASE(every_type_round_trips),
        CASE(an_empty_file_round_trips),
        CASE(the_writer_checks_its_caller),
        CASE(indexes_stay_in_their_folder),
        CASE(folders_without_a_model),
        CASE(every_failure_is_clean),
        CASE(links_lead_nowhere_else),
        CASE(a_file_that_is_cut_while_it_is_read),
        cmocka_unit_test(reference_models_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
