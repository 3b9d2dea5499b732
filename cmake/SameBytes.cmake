# The same sources give the same bytes, wherever they, torch and the build lie: `make reproducible` tries it.
get_filename_component(torch_root "${Torch_DIR}/../../.." ABSOLUTE)
# Of the maps that fit a path gcc takes the last.
add_compile_options(
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
  -ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/
  -ffile-prefix-map=${torch_root}/=torch/)
