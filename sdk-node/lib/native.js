'use strict';
/**
 * The compiled half, which lies beside this file.
 */
module.exports = require('./resil.node');
