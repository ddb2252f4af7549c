// The sentences nearest to a query, by the cosine of their vectors.

/** Vectors of int8 rows, (n, D); a row's scale does not matter to a cosine. */
export class Nearest {
  constructor(rows, dimension) {
    this.rows = rows;
    this.dimension = dimension;
    this.count = rows.length / dimension;
    this.lengths = Float32Array.from({ length: this.count }, (_, row) => this.#length(row));
  }

  #length(row) {
    const start = row * this.dimension;
    return Math.hypot(...this.rows.subarray(start, start + this.dimension)) || 1;
  }

  /** Return the cosine of one row and a vector of length 1. */
  cosine(row, unit) {
    const start = row * this.dimension;
    let sum = 0;
    for (let column = 0; column < this.dimension; column += 1) sum += this.rows[start + column] * unit[column];
    return sum / this.lengths[row];
  }

  /** Return { row, cosine } of the `most` nearest of those rows that `counts` says count. */
  to(vector, most, counts = () => true) {
    const unit = unitOf(vector);
    const found = [];
    for (let row = 0; row < this.count; row += 1) {
      if (counts(row)) found.push({ row, cosine: this.cosine(row, unit) });
    }
    return found.sort((left, right) => right.cosine - left.cosine).slice(0, most);
  }
}

/** Return the vector with length 1. */
export function unitOf(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((number) => number / length);
}
