// What a word means that is none of the names.
#include "sim/base/json.h"
#include "tests/support/test_main.h"

static const char *const names[] = {"h100-8",      "h800-8", "a800-8", "llama-7b", "llama-3-8b",
                                    "llama-3-70b", "1f1b",   "zb-h1",  "zb-h2",    "interleaved",
                                    "wikipedia",   "pp",     "tp"};

enum { NAMES = sizeof names / sizeof names[0] };

static void check(const char *word, const char *meant)
{
    const char *found = sp_nearest_name(word, names, NAMES);
    must_hold((found == NULL) == (meant == NULL) && (meant == NULL || strcmp(found, meant) == 0),
              "%s: %s for %s", word, found != NULL ? found : "none",
              meant != NULL ? meant : "none");
}

TEST(case_and_marks_say_nothing)
{
    check("H800-8", "h800-8");
    check("LLAMA_3 70B", "llama-3-70b");
}

TEST(a_beginning_is_enough)
{
    check("wiki", "wikipedia");
    check("H100", "h100-8");
    check("llama-3", "llama-3-8b");
    check("zb", "zb-h1");
    check("w", NULL); // too little
}

TEST(numbers_are_no_misspellings)
{
    check("llama-3-405b", NULL);
    check("llama-9b", "llama-7b");
    check("llama-4", NULL);
    check("lama-3-70b", "llama-3-70b");
    check("h10-8", "h100-8"); // a digit is missing
}

TEST(words_of_others)
{
    check("vpp", "interleaved"); // and not pp
    check("Zero_Bubble", "zb-h1");
}

TEST(letters_are_swapped_or_lost)
{
    check("wikpiedia", "wikipedia");
    check("interleavd", "interleaved");
    check("px", "pp");
    check("elephant", NULL);
    check("", NULL);
}

// However long, and whatever it holds.
TEST_ROUNDS(any_word, 1, 2000)
{
    char word[200];
    size_t length = sp_prng_below(prng, sizeof word - 1);
    for (size_t c = 0; c < length; c++) {
        word[c] = (char)(1 + sp_prng_below(prng, 255));
    }
    word[length] = '\0';
    const char *found = sp_nearest_name(word, names, NAMES);
    bool listed = found == NULL;
    for (int n = 0; n < NAMES; n++) {
        listed = listed || found == names[n];
    }
    assert_true(listed);
}
