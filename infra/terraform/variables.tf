variable "project" {
  description = "The Google Cloud project."
  type        = string
}

variable "region" {
  description = "Where everything runs."
  type        = string
}

variable "image" {
  description = "The image that infra/Dockerfile builds, by its digest."
  type        = string
}

variable "name" {
  description = "Put before the names of all resources but topics and subscriptions."
  type        = string
  default     = "lamina"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,8}$", var.name))
    error_message = "2 to 9 lower-case letters, digits and dashes: service accounts have short names."
  }
}

variable "topic_prefix" {
  description = "Put before each topic and subscription name, so that two environments can share a project."
  type        = string
  default     = ""
}

variable "agents" {
  description = "IAM members that may publish turns and call the services for agents, as in serviceAccount:agent@…"
  type        = set(string)
  default     = []
}

variable "agents_ingress" {
  description = "Where agents call from: INGRESS_TRAFFIC_ALL or INGRESS_TRAFFIC_INTERNAL_ONLY. IAM holds either way."
  type        = string
  default     = "INGRESS_TRAFFIC_ALL"
}

variable "settings" {
  description = "More settings of the services, by their LAMINA_ variables."
  type        = map(string)
  default     = {}
}

variable "vertex_location" {
  description = "Where Gemini answers."
  type        = string
  default     = "global"
}

variable "min_instances" {
  description = "Instances kept warm, of the services that agents call and of the workers."
  type        = object({ public = number, worker = number })
  default     = { public = 1, worker = 0 }
}

variable "max_instances" {
  description = "Of each service. Times the services and LAMINA_DATABASE_POOL (8), it must fit AlloyDB's max_connections."
  type        = number
  default     = 10
}

variable "alloydb_cpus" {
  description = "Of the primary instance."
  type        = number
  default     = 2
}

variable "alloydb_high_availability" {
  description = "Whether the primary has a standby in another zone."
  type        = bool
  default     = true
}

variable "valkey_node_type" {
  description = "SHARED_CORE_NANO, STANDARD_SMALL, HIGHMEM_MEDIUM or HIGHMEM_XLARGE."
  type        = string
  default     = "STANDARD_SMALL"
}

variable "valkey_replicas" {
  description = "Of the one shard."
  type        = number
  default     = 1
}

variable "deletion_protection" {
  description = "Refuse to destroy what holds memory."
  type        = bool
  default     = true
}

variable "notification_channels" {
  description = "Ids of the monitoring channels that alerts go to."
  type        = list(string)
  default     = []
}

variable "backlog_alert_messages" {
  description = "Alert when a subscription has this many undelivered messages for ten minutes."
  type        = number
  default     = 1000
}

variable "backlog_alert_seconds" {
  description = "Alert when the oldest undelivered message is this old for five minutes."
  type        = number
  default     = 900
}
