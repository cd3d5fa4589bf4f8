"""A little source code in each language, and the sections that come of it."""

from __future__ import annotations

SAMPLES: dict[str, tuple[list[str], str]] = {
    "a.c": (
        ["", "add", "point", ""],
        """\
/* Licence. */
#include <x.h>

/* Adds. */
static int
add (int a,
     int b)
{
    if (a) {
        goto out;
    }
out:
#ifdef X
    more();
#endif
}

struct point {
    int x;
};

int x = 1;
""",
    ),
    "a.cpp": (
        ["n", "Vec", "Vec > size", "Vec::run"],
        """\
namespace n {

template <typename T>
class Vec : public Base {
public:
    Vec(int n);
    // Size.
    size_t size() const {
        return n;
    }
};

int Vec::run(const char *x) {
    return f(x);
}
}
""",
    ),
    "a.java": (
        ["", "Foo", "Foo > Foo", "Foo > get"],
        """\
package a.b;

/** Docs. */
@Deprecated
public final class Foo extends Bar {
    private int x = f(1);

    public Foo(int x) {
    }

    @Override
    public Map<String, T> get(String key)
            throws E {
        return map.get(key);
    }
}
""",
    ),
    "a.cs": (
        ["", "N", "N > A", "N > A > RunAsync"],
        """\
using X;
namespace N
{
    [Serializable]
    public class A : B
    {
        public async Task<int> RunAsync(int x)
        {
        }
    }
}
""",
    ),
    "a.ts": (
        ["", "Foo", "Foo > constructor", "Foo > load", "add", "main"],
        """\
import x from 'y';

/** Docs. */
export class Foo<T> extends Bar {
  constructor(private a: number) {
  }

  async load(id: string): Promise<void> {
    if (id) {
    }
  }
}

export const add = (a: number) => a;
export default function main() {
  function inner() {}
}
""",
    ),
    "a.go": (
        ["", "Server", "Server.Start", ""],
        """\
// Package a.
package a

// Server serves.
type Server struct {
	x int
}

// Start starts.
func (s *Server) Start(n int) error {
	func() {
	}()
}

var x = 1
""",
    ),
    "a.rs": (
        ["", "Thing", "impl<T> Show for Thing<T>", "impl<T> Show for Thing<T> > show"],
        """\
use std::io;

/// Docs.
#[derive(Debug,
         Clone)]
pub struct Thing<T> {
    x: T,
}

impl<T> Show for Thing<T> {
    /// Shows.
    pub fn show(&self) {
        let f = |x| x;
    }
}
""",
    ),
    "a.kt": (
        ["", "P", "P > go"],
        """\
package a

data class P(val x: Int) {
    suspend fun go() {
    }
}
""",
    ),
    "a.swift": (
        ["", "S", "S > draw"],
        """\
import X

public struct S: View {
    func draw() -> Int {
    }
}
""",
    ),
    "a.rb": (
        ["", "A", "A > B", "A > B > hello?"],
        """\
require 'x'

module A
  class B < C
    # Says.
    def hello?(x)
      if x
      end
    end
  end
end
""",
    ),
    "a.php": (
        ["", "User", "User > name"],
        """\
<?php
namespace App\\Models;

abstract class User extends Model
{
    public function name(): string
    {
    }
}
""",
    ),
    "a.sh": (
        ["", "build", "clean", ""],
        """\
#!/bin/sh
set -e

# Builds.
build() {
  echo x
}

function clean {
  rm x
}

build
""",
    ),
    "a.lua": (
        ["", "M.foo", ""],
        """\
local M = {}
--[[ long
function no()
]]
function M.foo(a)
  return function() end
end
return M
""",
    ),
    "a.sql": (
        ["people", "f"],
        """\
-- People.
CREATE TABLE IF NOT EXISTS people (
  id int
);
create or replace function f() as $$
begin
end;
$$;
""",
    ),
    "a.ex": (
        ["A", "A > f"],
        """\
defmodule A do
  def f(x) do
    x
  end
end
""",
    ),
    "a.hs": (
        ["A", "add", "take n"],
        """\
module A where

-- | Adds.
add :: Int -> Int
add x = x

take n =
  n
""",
    ),
    "a.el": (
        ["", "say"],
        """\
;; Says.
(require 'x)

(defun say (x)
  x)
""",
    ),
    "a.css": (
        [".a:hover", "@media screen", ""],
        """\
.a:hover {
  color: red;
}

@media screen {
  .b { color: blue; }
}

.c { color: green; }
""",
    ),
    "a.tcl": (
        ["", "::a::say", ""],
        """\
package require x

# Says.
proc ::a::say {x} {
    puts $x
}
a::say
""",
    ),
    "a.pm": (
        ["", "new", ""],
        """\
package A;

=head1 NAME

For example

    sub no {
    }

=cut

sub new {
    my $x = shift;
}
1;
""",
    ),
    "CMakeLists.txt": (
        ["", "find_it", ""],
        """\
project(x)

# Finds.
function(find_it name)
  message(x)
endfunction()
find_it(a
  b)
""",
    ),
    "Dockerfile": (
        ["python:3.12 AS build", "scratch"],
        """\
# Builds.
FROM python:3.12 AS build
RUN a && \\
    b
FROM scratch
""",
    ),
    "a.xyz.erl": (
        ["", "add"],
        """\
-module(a).

%% Adds.
add(X) ->
    X.
""",
    ),
    "a.toml": (
        ["", "a.b", "c"],
        """\
x = 1

# Of a.
[a.b]
y = 2
[[c]]
""",
    ),
    "a.yaml": (
        ["", "services"],
        """\
# top
name: x
services:
  web:
    image: y
""",
    ),
    "a.json": (
        ["", "b"],
        """\
{
  "a": 1,
  "b": {
    "c": 2
  }
}
""",
    ),
    "Makefile": (
        ["", "all", "clean"],
        """\
X := 1

all: a b
	cc

# Cleans.
clean:
	rm
""",
    ),
    "a.tf": (
        ['resource "a" "b"'],
        """\
resource "a" "b" {
  x = 1
}
""",
    ),
    "a.diff": (
        ["x.py"],
        """\
diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -1 +1 @@
-a
+b
""",
    ),
}
