#include "tests/support/test_main.h"

static test_case *first;
static test_case **end = &first;

void test_case_add(test_case *added)
{
    *end = added;
    end = &added->next;
}

bool test_is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

int test_rounds(int all)
{
    return test_is_sanitized() ? (all + 3) / 4 : all;
}

int test_step(void)
{
    return test_is_sanitized() ? 4 : 1;
}

bool test_is_full(void)
{
    const char *full = getenv("SP_TEST_FULL");
    return full != NULL && strcmp(full, "1") == 0;
}

void test_in_full_run_alone(void)
{
    if (!test_is_full()) {
        skip();
    }
}

int test_draws(int all)
{
    return test_is_full() ? all : (all + 7) / 8;
}

_Thread_local sp_error test_error;

static const char *first_message(void)
{
    return test_error.count > 0 ? test_error.message[0] : "";
}

void check_call(const char *input, sp_status status, const char *call, const char *file, int line)
{
    if (status != SP_OK) {
        print_error("%s\n%s: %s: %s\n", input, call, sp_status_text(status), first_message());
        _fail(file, line);
    }
}

void check_refusal(sp_status status, sp_status expected, const char *message, bool whole,
                   const char *call, const char *file, int line)
{
    const char *said = first_message();
    bool is_said = whole ? strcmp(said, message) == 0 : strstr(said, message) != NULL;
    if (status != expected || !is_said) {
        print_error("%s: %s: %s\nexpected %s: %s\n", call, sp_status_text(status), said,
                    sp_status_text(expected), message);
        _fail(file, line);
    }
}

void check_near(double value, double expected, double relative, double distance, const char *file,
                int line)
{
    if (!(fabs(value - expected) <= relative * fabs(expected) + distance)) {
        print_error("%.17g is not %.17g\n", value, expected);
        _fail(file, line);
    }
}

void put_file(const char *path, const char *text)
{
    put_file_bytes(path, text, strlen(text));
}

void put_file_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

// cmocka hands a case the state it was listed with.
static void run_case(void **state)
{
    const test_case *c = (const test_case *)*state;
    sp_error_clear(ERR);
    c->run();
}

// Whether a case is what is asked for: FILE.CASE, FILE without test_ and .c, or FILE for all of
// its.
static bool is_asked_for(const test_case *c, const char *asked)
{
    const char *file = strstr(c->file, "/test_") + strlen("/test_");
    size_t length = strlen(file) - strlen(".c");
    return strncmp(asked, file, length) == 0 &&
           (asked[length] == '\0' ||
            (asked[length] == '.' && strcmp(asked + length + 1, c->name) == 0));
}

// Runs the cases that the first argument names (an unknown name fails), or all.
int main(int argc, char **argv)
{
    size_t count = 0;
    for (const test_case *c = first; c != NULL; c = c->next) {
        count++;
    }
    (void)setenv("SLIMPACK_BACKEND_PATH", SP_TEST_PLUGIN_DIR, 1);
    struct CMUnitTest *tests = (struct CMUnitTest *)calloc(count + 1, sizeof *tests);
    size_t chosen = 0;
    for (test_case *c = first; tests != NULL && c != NULL; c = c->next) {
        if (argc < 2 || is_asked_for(c, argv[1])) {
            tests[chosen++] = (struct CMUnitTest){c->name, run_case, NULL, NULL, c};
        }
    }
    if (chosen == 0) {
        fprintf(stderr, "no test case '%s'\n", argc < 2 ? "" : argv[1]);
        free(tests);
        return 1;
    }
    int failed = _cmocka_run_group_tests("tests", tests, chosen, NULL, NULL);
    free(tests);
    return failed;
}
