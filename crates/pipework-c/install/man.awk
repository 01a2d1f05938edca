# Writes man pages of section 3 from the header: awk -v folder=man3 -v version=0.1.0 -f man.awk pipework.h
# Its first comment is pipework(3). Each section of it is a page, which bears the name of the first
# type or function there; every other one has a page that leads to it. A section with nothing of its
# own introduces a room, and stands in pipework(3).

function escaped(text) {
    gsub(/\\/, "\\e", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

function open_page(name, title) {
    page = name
    file = folder "/" name ".3"
    printf ".TH %s 3 \"\" \"pipework %s\" \"pipework\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, name, title > file
    if (name != "pipework") print ".SH SYNOPSIS\n.nf\n#include <pipework.h>\n.fi\n.SH DESCRIPTION" > file
    else print ".SH DESCRIPTION" > file
}

# A comment as paragraphs; lines of code and of a list stay as they are.
function put_text(text,    lines, count, i, code, line) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) {
        line = lines[i]
        if (line ~ /^```/) {
            code = !code
            print (code ? ".PP\n.EX" : ".EE") > file
        } else if (code) {
            print escaped(line) > file
        } else if (line == "") {
            print ".PP" > file
        } else {
            if (line ~ /^([0-9]+\.|-) /) print ".PP" > file
            sub(/^ +/, "", line)
            gsub(/`/, "", line)
            print escaped(line) > file
        }
    }
}

function begin_section(    title, at) {
    # The first sentence names the page, and all of it opens it.
    title = intro
    gsub(/\n/, " ", title)
    at = index(title, ". ")
    if (at) title = substr(title, 1, at - 1)
    sub(/\.$/, "", title)
    open_page(item, title)
    put_text(intro)
    intro = ""
}

function put_room(    before, title) {
    before = file
    file = folder "/pipework.3"
    title = intro
    sub(/:.*/, "", title)
    print ".SS " title > file
    put_text(intro)
    file = before
}

function put_constants(    blocks, count, i, at) {
    count = split(constants, blocks, "\n\f\n")
    for (i = 1; i < count; i++) {
        at = index(blocks[i], "\n")
        print ".TP\n.B " substr(blocks[i], 1, at - 1) > file
        put_text(substr(blocks[i], at + 1))
    }
    constants = ""
}

function put_item() {
    if (intro != "") {
        begin_section()
        put_constants()
    }
    if (item != page) print ".so man3/" page ".3" > (folder "/" item ".3")
    if (item != page) close(folder "/" item ".3")
    print ".SS " item > file
    print ".nf" > file
    put_code(declaration)
    print ".fi\n.PP" > file
    put_text(note)
}

function put_code(text,    lines, count, i) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) if (lines[i] != "") print escaped(lines[i]) > file
}

# Comments.
/^ *\/\*/ && !in_declaration {
    in_comment = 1
    is_section = ($0 ~ /^\/\* -----/)
    note = ""
    if ($0 ~ /\*\/$/) {
        note = $0
        sub(/^ *\/\* */, "", note)
        sub(/ *\*\/$/, "", note)
        in_comment = 0
    }
    next
}
in_comment && /^ *\*\/$/ {
    in_comment = 0
    if (is_section) {
        if (intro != "") put_room()
        intro = note
        note = ""
    } else if (!seen_front) {
        seen_front = 1
        title = note
        sub(/^pipework: /, "", title)
        sub(/\..*/, "", title)
        gsub(/\n/, " ", title)
        open_page("pipework", title)
        put_text(note)
        note = ""
    }
    next
}
in_comment {
    line = $0
    sub(/^ *\* ?/, "", line)
    note = note (note == "" ? "" : "\n") line
    next
}

# Declarations.
/^#define PW_/ {
    # Where a section begins with some, they wait for its page.
    constants = constants $2 "\n" note "\n\f\n"
    if (intro == "") put_constants()
    note = ""
    next
}
/^(typedef|[a-z].*\()/ && !in_declaration {
    in_declaration = 1
    declaration = ""
}
in_declaration {
    declaration = declaration $0 "\n"
    is_end = ($0 ~ /;$/) && (declaration !~ /\{/ || $0 ~ /^\}/)
    if (is_end) {
        in_declaration = 0
        item = declaration
        if (item ~ /^typedef/) {
            sub(/;\n$/, "", item)
            sub(/.*[ *}]/, "", item)
        } else {
            sub(/\(.*/, "", item)
            sub(/.*[ *]/, "", item)
        }
        put_item()
        note = ""
    }
}
