// Which of several names a word means that is none of them.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/writer.h"

enum { WORD = 64 };

// Words of others for something that has another name here.
static const char *const meanings[][2] = {
    {"lr", "learning_rate"},  {"megatron", "megatron-core-2025"},
    {"num-gpus", "gpus"},     {"ring", "te-cp"},
    {"vpp", "interleaved"},   {"virtual-pipeline", "interleaved"},
    {"wlb", "balanced"},      {"wlb-llm", "balanced"},
    {"zero-bubble", "zb-h1"},
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Optimal string alignment distance of two words of fewer than WORD bytes: insertion, deletion,
// substitution and the swap of neighbours cost 1 each.
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][WORD + 1];
    size_t m = strlen(b);
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    size_t n = strlen(a);
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1);
            row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], rows[(i + 1) % 3][j - 2] + 1);
            }
        }
    }
    return rows[n % 3][m];
}

static bool is_mark(char c)
{
    return c == '-' || c == '_' || c == ' ';
}

// Does the name begin with the word, whatever case and marks? *whole: it is the word. A dot stays:
// 1.3 is not 13.
static bool begins(const char *name, const char *word, bool *whole)
{
    for (;;) {
        name += strspn(name, "-_ ");
        word += strspn(word, "-_ ");
        if (*word == '\0') {
            *whole = *name == '\0';
            return true;
        }
        if (tolower((unsigned char)*name) != tolower((unsigned char)*word)) {
            return false;
        }
        name++;
        word++;
    }
}

bool sp_same_name(const char *a, const char *b)
{
    bool whole = false;
    return begins(a, b, &whole) && whole;
}

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

bool sp_names_hold(const char *names, const char *name)
{
    while (*names != '\0') {
        size_t length = strcspn(names, " ");
        size_t i = 0;
        while (i < length && folded(names[i]) == folded(name[i])) {
            i++;
        }
        if (length > 0 && i == length && name[length] == '\0') {
            return true;
        }
        names += length + (names[length] == ' ');
    }
    return false;
}

const char *sp_listed_name(const char *word, const char *const *names)
{
    while (*names != NULL && !sp_same_name(*names, word)) {
        names++;
    }
    return *names;
}

// The next number of a text, past its end.
static const char *next_number(const char *text, size_t *digits)
{
    text += strcspn(text, "0123456789");
    *digits = strspn(text, "0123456789");
    return text;
}

// Are the names alike but for their digits?
static bool like_letters(const char *a, const char *b)
{
    for (;;) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return false;
        }
        if (*a == '\0') {
            return true;
        }
        a++;
        b++;
    }
}

// Numbers say what letters cannot: llama-3-405b is no misspelt llama-3-70b. Digits may be missing
// at an end, or be others where all else is alike: llama-4 is no misspelt llama-7b.
static bool like_numbers(const char *a, const char *b)
{
    bool others = like_letters(a, b);
    for (;;) {
        size_t m = 0;
        size_t n = 0;
        a = next_number(a, &m);
        b = next_number(b, &n);
        if (m == 0 || n == 0) {
            return true;
        }
        if ((m != n || !others) && strncmp(a, b, least(m, n)) != 0) {
            return false;
        }
        a += m;
        b += n;
    }
}

// The name that is the word but for case and marks, that others call so, or, for a word of two
// letters and more, the shortest that begins with it.
static const char *by_meaning(const char *word, const char *const *names, int n)
{
    const char *begun = NULL;
    bool whole = false;
    for (int i = 0; i < n; i++) {
        bool alike = begins(names[i], word, &whole);
        if (alike && whole) {
            return names[i];
        }
        bool shorter = begun == NULL || strlen(names[i]) < strlen(begun);
        begun = alike && shorter && strlen(word) > 1 && !is_mark(word[0]) ? names[i] : begun;
    }
    for (size_t m = 0; m < sizeof meanings / sizeof meanings[0]; m++) {
        bool meant = sp_same_name(meanings[m][0], word);
        for (int i = 0; meant && i < n; i++) {
            if (strcmp(names[i], meanings[m][1]) == 0) {
                return names[i];
            }
        }
    }
    return begun;
}

const char *sp_nearest_name(const char *word, const char *const *names, int n)
{
    size_t length = strlen(word);
    const char *meant = length > 0 ? by_meaning(word, names, n) : NULL;
    if (length >= WORD || meant != NULL) {
        return meant;
    }
    size_t best = length <= 3 ? 1 : length / 3 > 2 ? length / 3 : 2;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        if (strlen(names[i]) >= WORD || !like_numbers(word, names[i])) {
            continue;
        }
        size_t distance = edit_distance(word, names[i]);
        if (distance < length && (distance < best || (distance == best && nearest == NULL))) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

const char *sp_name_hint(const char *word, const char *const *names, int n, char text[SP_NAME_HINT])
{
    const char *near = sp_nearest_name(word, names, n);
    snprintf(text, SP_NAME_HINT, near != NULL ? " (did you mean '%s'?)" : "%s",
             near != NULL ? near : "");
    return text;
}

const char *sp_name_choice(const char *word, const char *const *names, int n,
                           char text[SP_NAME_CHOICE])
{
    const char *near = sp_nearest_name(word, names, n);
    snprintf(text, SP_NAME_HINT, near != NULL ? " (did you mean '%s'? known: " : " (known: %s",
             near != NULL ? near : "");
    for (int i = 0; i < n; i++) {
        sp_append(text, SP_NAME_CHOICE - 1, "%s%.40s", i > 0 ? ", " : "", names[i]);
    }
    sp_append(text, SP_NAME_CHOICE, ")");
    return text;
}
