/* Arguments and results. */
#include "pwperl.h"

/* So much is not asked for. */
#define ALWAYS_FITS ((size_t)1 << 26)

SV *pwp_fetch(pTHX_ SV *argument) {
    if (SvGMAGICAL(argument) || SvROK(argument)) {
        SV *copy = sv_newmortal();
        SvGETMAGIC(argument);
        if (SvROK(argument) && SvAMAGIC(argument)) {
            STRLEN len;
            const char *text = SvPV_nomg(argument, len);
            sv_setpvn(copy, text, len);
            if (SvUTF8(argument)) SvUTF8_on(copy);
        } else {
            sv_setsv_nomg(copy, argument);
        }
        return copy;
    }
    /* An argument that is fetched later may take it out of its hash or array. */
    return pwp_keep(aTHX_ argument);
}

SV *pwp_number(pTHX_ SV *argument) {
    SV *copy;
    if (LIKELY(SvNIOK(argument) && !SvGMAGICAL(argument))) return argument;
    SvGETMAGIC(argument);
    copy = sv_newmortal();
    sv_setsv_nomg(copy, argument);
    if (SvROK(copy) && SvAMAGIC(copy)) {
        SV *number = AMG_CALLunary(copy, numer_amg);
        if (number && !SvROK(number)) sv_setsv(copy, number);
    }
    return copy;
}

IV pwp_integer(pTHX_ SV *argument) {
    IV integer;
    argument = pwp_number(aTHX_ argument);
    integer = SvIV_nomg(argument);
    return integer < 0 && SvIsUV(argument) ? IV_MAX : integer;
}

UV pwp_count(pTHX_ SV *argument) {
    argument = pwp_number(aTHX_ argument);
    return SvUV_nomg(argument);
}

NV pwp_real(pTHX_ SV *argument) {
    argument = pwp_number(aTHX_ argument);
    return SvNV_nomg(argument);
}

void pwp_must_fit(pTHX_ size_t len) {
    /* The compiler would remove an allocation that is not used. */
    void *volatile memory;
    if (LIKELY(len < ALWAYS_FITS)) return;
    memory = malloc(len);
    if (!memory) croak("Out of memory for %" UVuf " bytes", (UV)len);
    free(memory);
}

SV *pwp_string(pTHX_ const void *data, size_t len) {
    pwp_must_fit(aTHX_ len + 1);
    return newSVpvn_flags(len ? (const char *)data : "", len, SVs_TEMP);
}

pwk_bytes pwp_bytes(pTHX_ SV *fetched, const char *name) {
    pwk_bytes bytes;
    STRLEN len;
    bytes.data = SvPV_nomg_const(fetched, len);
    /* The text of a reference is not kept in it. */
    if (SvUTF8(fetched) || SvROK(fetched)) {
        SV *copy = newSVpvn_flags((const char *)bytes.data, len, SVs_TEMP | SvUTF8(fetched));
        if (!sv_utf8_downgrade(copy, TRUE)) croak("Wide character in %s", name);
        bytes.data = SvPV_const(copy, len);
    }
    bytes.len = len;
    return bytes;
}

void pwp_must_be_writable(pTHX_ SV *output) {
    if (SvREADONLY(output)) croak_no_modify();
}

void pwp_assign(pTHX_ SV *output, const void *data, size_t len) {
    sv_setpvn(output, len ? (const char *)data : "", len);
    SvUTF8_off(output);
    SvSETMAGIC(output);
}

const char *pwp_path(pTHX_ SV *fetched, const char *name) {
    STRLEN len;
    const char *path = SvPV_nomg_const(fetched, len);
    if (memchr(path, 0, len)) croak("%s: the path has a NUL in it", name);
    return path;
}

/* ---------------------------------------------------------------- named arguments */

static void refuse(pTHX_ CV *cv, const char *why, SV *name, const pwp_named *known, size_t count)
    __attribute__((noreturn));
static void refuse(pTHX_ CV *cv, const char *why, SV *name, const pwp_named *known, size_t count) {
    const char *method = GvNAME(CvGV(cv));
    SV *names = newSVpvs_flags("", SVs_TEMP);
    for (size_t i = 0; i < count; i++) sv_catpvf(names, i ? ", %s" : "%s", known[i].name);
    croak("%s->%s: %s '%" SVf "' (known: %" SVf ")", pwp_called(aTHX_ HvNAME(GvSTASH(CvGV(cv)))),
          method + (*method == '_'), why, SVfARG(name), SVfARG(names));
}

void pwp_take_named(pTHX_ CV *cv, I32 ax, I32 first, I32 items, pwp_named *known, size_t count) {
    for (I32 i = first; i < items; i += 2) {
        SV *name = pwp_fetch(aTHX_ ST(i));
        size_t at = 0;
        while (at < count && strNE(known[at].name, SvPV_nomg_nolen(name))) at++;
        if (at == count) refuse(aTHX_ cv, "unknown argument", name, known, count);
        if (i + 1 == items) refuse(aTHX_ cv, "no value for", name, known, count);
        known[at].value = ST(i + 1);
    }
}

SV *pwp_timeout(pTHX_ CV *cv, I32 ax, I32 first, I32 items) {
    pwp_named timeout = {"timeout", NULL};
    if (items == first + 1) return ST(first);
    pwp_take_named(aTHX_ cv, ax, first, items, &timeout, 1);
    return timeout.value;
}

/* ---------------------------------------------------------------- results */

I32 pwp_give(pTHX_ I32 ax, SV *value) {
    dSP;
    EXTEND(SP, 1);
    PERL_UNUSED_VAR(sp);
    ST(0) = value;
    return 1;
}

I32 pwp_give_two(pTHX_ I32 ax, SV *first, SV *second) {
    dSP;
    EXTEND(SP, 2);
    PERL_UNUSED_VAR(sp);
    ST(0) = first;
    ST(1) = second;
    return 2;
}
