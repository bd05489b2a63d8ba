// Other programs as processes: what they end with and say, and a folder that cannot be used.
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "tests/support/test_main.h"

// In place of the screen's: nothing is held back here.
void cli_screen_flush(void)
{
}

static cli_ended ended_in(const char *folder, const char *program, const char *script)
{
    char *words[] = {"sh", "-c", (char *)script, NULL};
    const cli_child child = {
        .folder = folder, .program = program, .argv = words, .limit_s = (double)INFINITY};
    return cli_run_child(&child);
}

TEST(a_program_says_how_it_ended)
{
    cli_ended e = ended_in(".", "sh", "echo first >&2; echo 'error: no room' >&2; exit 3");
    assert_int_equal(e.exit_status, 3);
    assert_string_equal(e.said, "no room");
    e = ended_in(".", "sh", "echo first; echo last; exit 0");
    assert_int_equal(e.exit_status, 0);
    assert_string_equal(e.said, "last");
    e = ended_in(".", "sh", "kill -KILL $$");
    assert_true(e.exit_status < 0);
    assert_non_null(strstr(e.said, "ended by signal 9"));
}

TEST(a_program_that_is_none)
{
    cli_ended e = ended_in(".", "no-such-program-of-slimpack", "true");
    assert_int_equal(e.exit_status, CLI_NOT_STARTED);
}

// The lines into which an error is wrapped belong to it, what else follows does not.
TEST(a_program_whose_error_is_wrapped)
{
    cli_ended e =
        ended_in(".", "sh",
                 "echo 'error: 3 GiB are needed,' >&2; echo '       2 are free; run less' "
                 ">&2; echo '       of it' >&2; echo 'error: no file' >&2; exit 4");
    assert_int_equal(e.exit_status, 4);
    assert_string_equal(e.said, "3 GiB are needed, 2 are free; run less of it");
    e = ended_in(".", "sh", "echo 'error: no file' >&2; echo 'run help' >&2; exit 2");
    assert_string_equal(e.said, "no file");
}

// Nothing is started in another folder, and no message of an earlier program is taken for its own.
TEST(a_folder_that_cannot_be_used)
{
    cli_ended e = ended_in("missing", "sh", "echo 'error: started' >&2");
    assert_int_equal(e.exit_status, CLI_NOT_PREPARED);
    assert_string_equal(e.said, "cannot work in missing");
    rmdir("taken/said.txt");
    rmdir("taken");
    assert_int_equal(mkdir("taken", 0700), 0);
    assert_int_equal(mkdir("taken/said.txt", 0700), 0);
    e = ended_in("taken", "sh", "echo started >started.txt");
    assert_int_equal(e.exit_status, CLI_NOT_PREPARED);
    assert_string_equal(e.said, "cannot work in taken");
    assert_int_not_equal(access("taken/started.txt", F_OK), 0);
}

// Ended at its limit, and said so.
TEST(a_program_that_takes_too_long)
{
    char *words[] = {"sh", "-c", "exec sleep 60", NULL};
    const cli_child child = {.folder = ".", .program = "sh", .argv = words, .limit_s = 0.2};
    cli_ended e = cli_run_child(&child);
    assert_true(e.late && e.exit_status < 0 && e.seconds < 30.0);
    assert_non_null(strstr(e.said, "ended after"));
}
