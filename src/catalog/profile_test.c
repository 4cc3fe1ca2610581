// Tests profiles: every profile loads; omitted keys have trireme's values; errors for wrong keys
// and names give the nearest.
#include "catalog/profile.h"

#include "catalog/files.h"
#include "cost/habits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static arena *fresh(void)
{
    arena *a;
    assert_int_equal(arena_create("profile test", 0, &a), ST_OK);
    return a;
}

static void what_is_left_out_is_trireme(void **state)
{
    (void)state;
    arena *a = fresh();
    cost_profile p, own = cost_profile_trireme();
    assert_int_equal(catalog_profile_load(host_real(), a, "trireme", NULL, NULL, 0, &p), ST_OK);
    assert_string_equal(p.name, "trireme");
    own.name = p.name;
    own.about = p.about;
    assert_memory_equal(&p, &own, sizeof(p));
    arena_destroy(a);
}

static void all_profiles_load(void **state)
{
    (void)state;
    static const char *const wanted[] = {"trireme",   "megatron", "megatron-2020", "fsdp",
                                         "deepspeed", "nanotron", "internevo",     "llm.c"};
    arena *a = fresh();
    int count = 0;
    for (const catalog_file *f = catalog_files; f->folder != NULL; f++) {
        cost_profile p;
        option_list fitted;
        if (strcmp(f->folder, "profiles") != 0) continue;
        assert_int_equal(catalog_profile_load(host_real(), a, f->name, NULL, NULL, 0, &p), ST_OK);
        assert_int_equal(catalog_profile_fitted(host_real(), a, f->name, &fitted), ST_OK);
        assert_string_equal(p.name, f->name);
        assert_true(p.gemm > 0.1 && p.gemm < 2.0 && p.attention > 0.01 && p.memory > 0.1);
        assert_true(p.overlap[TRAFFIC_TP] >= 0.0 && p.overlap[TRAFFIC_TP] <= 1.0 &&
                    p.context_bytes >= 0);
        for (int64_t i = 0; i < fitted.count; i++) assert_true(strlen(fitted.items[i]) > 0);
        count++;
    }
    assert_true(count >= COUNT_OF(wanted));
    for (int64_t i = 0; i < COUNT_OF(wanted); i++) {
        cost_profile p;
        assert_int_equal(catalog_profile_load(host_real(), a, wanted[i], NULL, NULL, 0, &p), ST_OK);
    }
    arena_destroy(a);
}

static void a_device_may_have_its_own(void **state)
{
    (void)state;
    arena *a = fresh();
    cost_profile p;
    assert_int_equal(catalog_profile_load(host_real(), a, "fsdp", "h100", NULL, 0, &p), ST_OK);
    assert_string_equal(p.name, "fsdp.h100");
    assert_int_equal(catalog_profile_load(host_real(), a, "fsdp", "h200", NULL, 0, &p), ST_OK);
    assert_string_equal(p.name, "fsdp.h100"); // the H200's entry is based on the H100's
    assert_int_equal(catalog_profile_load(host_real(), a, "megatron", "gb300", NULL, 0, &p), ST_OK);
    assert_string_equal(p.name, "megatron.b200");
    assert_int_equal(catalog_profile_load(host_real(), a, "fsdp", "a100-80", NULL, 0, &p), ST_OK);
    assert_string_equal(p.name, "fsdp");
    arena_destroy(a);
}

// A run may differ from the usual behaviour of its software: its own keys count, and all others
// stay.
static void a_run_says_otherwise(void **state)
{
    (void)state;
    arena *a = fresh();
    cost_profile p, own;
    const char *const says[] = {"dp_beside=no", "rings=no"}, *const wrong[] = {"dp_besides=no"};
    assert_int_equal(catalog_profile_load(host_real(), a, "megatron", "v100-16", NULL, 0, &p),
                     ST_OK);
    assert_true(p.habits->dp_beside && p.habits->rings && p.habits->pp_pieces);
    assert_int_equal(catalog_profile_load(host_real(), a, "megatron", "v100-16", says, 2, &own),
                     ST_OK);
    assert_true(!own.habits->dp_beside && !own.habits->rings && own.habits->pp_pieces);
    assert_string_equal(own.name, p.name);
    assert_true(own.attention == p.attention && own.gemm == p.gemm);
    assert_int_equal(catalog_profile_load(host_real(), a, "megatron", NULL, wrong, 1, &own),
                     ST_CONFIG_KEY);
    assert_non_null(strstr(error_last()->text, "dp_beside"));
    arena_destroy(a);
}

static void a_wrong_name_says_the_nearest(void **state)
{
    (void)state;
    arena *a = fresh();
    cost_profile p;
    assert_int_equal(catalog_profile_load(host_real(), a, "megatrn", NULL, NULL, 0, &p), ST_CONFIG);
    assert_non_null(strstr(error_last()->text, "did you mean megatron"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_is_trireme),   cmocka_unit_test(all_profiles_load),
        cmocka_unit_test(a_device_may_have_its_own),     cmocka_unit_test(a_run_says_otherwise),
        cmocka_unit_test(a_wrong_name_says_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
