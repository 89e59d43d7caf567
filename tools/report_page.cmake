# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUTS=FILE;... -DOUTPUT=FILE.c -P report_page.cmake: writes the files as C arrays. page.css becomes
# report_page_css.
set(text "/* Made from tools/report by report_page.cmake. */\n#include \"tools/report_page.h\"\n")
foreach(input ${INPUTS})
  get_filename_component(name ${input} NAME)
  string(REPLACE "." "_" name ${name})
  file(READ ${input} bytes HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND text "\nconst char report_${name}[] = {\n    ${bytes}'\\0'};\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
