# For the results of sweeps, one line of JSON each: the first value of a key, without quotes, and the
# median of list[1..n], which is sorted.
function get(key,   at, rest) {
    at = index($0, "\"" key "\":")
    if (at == 0) { return "" }
    rest = substr($0, at + length(key) + 3)
    sub(/^ *"?/, "", rest)
    sub(/[",}].*/, "", rest)
    return rest
}
function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) { for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t } }
    return n == 0 ? -1 : n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
